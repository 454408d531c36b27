//! `shop.Orders`, by hand as `tonic-prost-build` would make it (which needs `protoc`).

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use tonic::codegen::{Body, BoxFuture, Bytes, GrpcMethod, Service, StdError};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(uint32, tag = "1")]
    pub(crate) number: u32,
}

type Codec = ProstCodec<Order, Order>;

#[derive(Clone, Debug)]
pub(crate) struct OrdersClient<T> {
    inner: tonic::client::Grpc<T>,
}

impl<T> OrdersClient<T>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: tonic::client::Grpc::new(inner) }
    }

    pub(crate) async fn get(&mut self, order: Order) -> Result<Response<Order>, Status> {
        self.unary(order, "/shop.Orders/Get", GrpcMethod::new("shop.Orders", "Get")).await
    }

    pub(crate) async fn place(&mut self, order: Order) -> Result<Response<Order>, Status> {
        self.unary(order, "/shop.Orders/Place", GrpcMethod::new("shop.Orders", "Place")).await
    }

    async fn unary(
        &mut self,
        order: Order,
        path: &'static str,
        method: GrpcMethod<'static>,
    ) -> Result<Response<Order>, Status> {
        self.inner
            .ready()
            .await
            .map_err(|error| Status::unknown(format!("Service was not ready: {}", error.into())))?;
        let mut request = Request::new(order);
        request.extensions_mut().insert(method);
        self.inner.unary(request, PathAndQuery::from_static(path), Codec::default()).await
    }
}

#[tonic::async_trait]
pub(crate) trait Orders: Send + Sync + 'static {
    async fn get(&self, request: Request<Order>) -> Result<Response<Order>, Status>;
    async fn place(&self, request: Request<Order>) -> Result<Response<Order>, Status>;
}

pub(crate) struct OrdersServer<T> {
    inner: Arc<T>,
}

impl<T> OrdersServer<T> {
    pub(crate) const fn new(inner: Arc<T>) -> Self {
        Self { inner }
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

enum Call<T> {
    Get(Arc<T>),
    Place(Arc<T>),
}

impl<T: Orders> tonic::server::UnaryService<Order> for Call<T> {
    type Response = Order;
    type Future = BoxFuture<Response<Order>, Status>;

    fn call(&mut self, request: Request<Order>) -> Self::Future {
        match self {
            Self::Get(inner) => {
                let inner = Arc::clone(inner);
                Box::pin(async move { inner.get(request).await })
            }
            Self::Place(inner) => {
                let inner = Arc::clone(inner);
                Box::pin(async move { inner.place(request).await })
            }
        }
    }
}

impl<T, B> Service<http::Request<B>> for OrdersServer<T>
where
    T: Orders,
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let call = match request.uri().path() {
                "/shop.Orders/Get" => Call::Get(inner),
                "/shop.Orders/Place" => Call::Place(inner),
                _ => return Ok(Status::unimplemented("").into_http()),
            };
            Ok(tonic::server::Grpc::new(Codec::default()).unary(call, request).await)
        })
    }
}
