// `shop.Orders`, as `tonic-prost-build` would make it of a service with one method of each kind. The
// README includes it too.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::codegen::{Body, BoxFuture, Bytes, GrpcMethod, Service, StdError, http};
use tonic::{IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Order {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(bytes = "vec", tag = "2")]
    pub note: Vec<u8>,
}

impl Order {
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), note: Vec::new() }
    }
}

// === Client ===

#[derive(Clone, Debug)]
pub struct OrdersClient<T> {
    inner: tonic::client::Grpc<T>,
}

impl<T> OrdersClient<T>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    pub fn new(inner: T) -> Self {
        Self { inner: tonic::client::Grpc::new(inner) }
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.inner
            .ready()
            .await
            .map_err(|error| Status::unknown(format!("Service was not ready: {}", error.into())))
    }

    pub async fn get(
        &mut self,
        request: impl IntoRequest<Order>,
    ) -> Result<Response<Order>, Status> {
        self.ready().await?;
        let path = http::uri::PathAndQuery::from_static("/shop.Orders/Get");
        let mut request = request.into_request();
        request.extensions_mut().insert(GrpcMethod::new("shop.Orders", "Get"));
        self.inner.unary(request, path, ProstCodec::<Order, Order>::default()).await
    }

    pub async fn watch(
        &mut self,
        request: impl IntoRequest<Order>,
    ) -> Result<Response<Streaming<Order>>, Status> {
        self.ready().await?;
        let path = http::uri::PathAndQuery::from_static("/shop.Orders/Watch");
        let mut request = request.into_request();
        request.extensions_mut().insert(GrpcMethod::new("shop.Orders", "Watch"));
        self.inner.server_streaming(request, path, ProstCodec::<Order, Order>::default()).await
    }

    pub async fn chat(
        &mut self,
        request: impl IntoStreamingRequest<Message = Order>,
    ) -> Result<Response<Streaming<Order>>, Status> {
        self.ready().await?;
        let path = http::uri::PathAndQuery::from_static("/shop.Orders/Chat");
        let mut request = request.into_streaming_request();
        request.extensions_mut().insert(GrpcMethod::new("shop.Orders", "Chat"));
        self.inner.streaming(request, path, ProstCodec::<Order, Order>::default()).await
    }
}

// === Server ===

pub type OrderStream = Pin<Box<dyn Stream<Item = Result<Order, Status>> + Send>>;

#[tonic::async_trait]
pub trait Orders: Send + Sync + 'static {
    async fn get(&self, request: Request<Order>) -> Result<Response<Order>, Status>;

    async fn watch(&self, _request: Request<Order>) -> Result<Response<OrderStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn chat(
        &self,
        _request: Request<Streaming<Order>>,
    ) -> Result<Response<OrderStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[derive(Debug)]
pub struct OrdersServer<T> {
    inner: Arc<T>,
}

impl<T> OrdersServer<T> {
    pub fn new(inner: T) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl<T> Clone for OrdersServer<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> tonic::server::NamedService for OrdersServer<T> {
    const NAME: &'static str = "shop.Orders";
}

struct Call<T>(Arc<T>);

impl<T: Orders> tonic::server::UnaryService<Order> for Call<T> {
    type Response = Order;
    type Future = BoxFuture<Response<Order>, Status>;

    fn call(&mut self, request: Request<Order>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.get(request).await })
    }
}

impl<T: Orders> tonic::server::ServerStreamingService<Order> for Call<T> {
    type Response = Order;
    type ResponseStream = OrderStream;
    type Future = BoxFuture<Response<OrderStream>, Status>;

    fn call(&mut self, request: Request<Order>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.watch(request).await })
    }
}

impl<T: Orders> tonic::server::StreamingService<Order> for Call<T> {
    type Response = Order;
    type ResponseStream = OrderStream;
    type Future = BoxFuture<Response<OrderStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Order>>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.chat(request).await })
    }
}

impl<T, B> Service<http::Request<B>> for OrdersServer<T>
where
    T: Orders,
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let call = Call(Arc::clone(&self.inner));
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Order, Order>::default());
            Ok(match request.uri().path() {
                "/shop.Orders/Get" => grpc.unary(call, request).await,
                "/shop.Orders/Watch" => grpc.server_streaming(call, request).await,
                "/shop.Orders/Chat" => grpc.streaming(call, request).await,
                _ => Status::unimplemented("").into_http(),
            })
        })
    }
}
