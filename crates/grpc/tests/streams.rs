//! Where the status comes from, and what becomes of an answer that has begun.

mod common;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{Classify, ErrorClass};
use tower_triage_grpc::{GrpcReplay, GrpcRulesExt, PeekLayer, grpc};

use crate::common::orders::{Order, OrderStream, Orders};
use crate::common::{
    Client, Scripted, bare_headers, channel, client, message, serve, serve_h2, soon, status_headers,
};

fn marked(address: std::net::SocketAddr) -> Client {
    client(grpc().repeatable_methods(["shop.Orders"]), GrpcReplay::new(), channel(address))
}

async fn drain(mut request: http::Request<h2::RecvStream>) {
    while let Some(Ok(data)) = request.body_mut().data().await {
        let _ = request.body_mut().flow_control().release_capacity(data.len());
    }
}

/// An order, and OK.
fn answer(mut respond: SendResponse<Bytes>, id: &str) {
    let mut stream = respond.send_response(bare_headers(), false).unwrap();
    stream.send_data(message(&Order::new(id)), false).unwrap();
    stream.send_trailers(status_headers(&[("grpc-status", "0")])).unwrap();
}

#[tokio::test]
async fn kf61_unavailable_in_the_headers_is_retried() {
    let server = Scripted::failing([Status::unavailable(""), Status::unavailable("")]);
    let mut client = marked(serve(server.clone()).await);
    assert!(client.get(Order::new("17")).await.is_ok());
    assert_eq!(server.calls(), 3);
}

/// The server sends headers, and trailers after it was told to.
#[tokio::test]
async fn kf61_unavailable_in_the_trailers_is_retried() {
    for apart in [false, true] {
        let calls = Arc::new(Mutex::new(0));
        let count = Arc::clone(&calls);
        let address = serve_h2(move |number, request, mut respond| {
            let count = Arc::clone(&count);
            async move {
                *count.lock().unwrap() += 1;
                drain(request).await;
                if number == 2 {
                    return answer(respond, "17");
                }
                let mut stream = respond.send_response(bare_headers(), false).unwrap();
                if apart {
                    // The headers are on their way before the trailers are made.
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                }
                stream.send_trailers(status_headers(&[("grpc-status", "14")])).unwrap();
            }
        })
        .await;
        let answer = soon(marked(address).get(Order::new("17"))).await.unwrap();
        assert_eq!(answer.into_inner(), Order::new("17"));
        assert_eq!(*calls.lock().unwrap(), 3);
    }
}

#[tokio::test]
async fn a_status_in_the_trailers_reaches_a_caller_who_does_not_repeat() {
    let address = serve_h2(|_, request, mut respond| async move {
        drain(request).await;
        let mut stream = respond.send_response(bare_headers(), false).unwrap();
        let status = [("grpc-status", "5"), ("grpc-message", "no such order"), ("x-key", "kept")];
        stream.send_trailers(status_headers(&status)).unwrap();
    })
    .await;
    let status = soon(marked(address).get(Order::new("17"))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no such order"));
    assert_eq!(status.metadata().get("x-key").unwrap(), "kept");
}

/// The class of the answer to a call straight through a peek.
async fn class_at(address: std::net::SocketAddr) -> Option<ErrorClass> {
    let stack = ServiceBuilder::new().layer(PeekLayer::new()).service(channel(address));
    let request = http::Request::post("/shop.Orders/Get").body(tonic::body::Body::empty()).unwrap();
    let response = soon(stack.oneshot(request)).await.unwrap();
    let outcome: Result<_, &Infallible> = Ok(&response);
    grpc().classify(outcome).failure().map(|failure| failure.class)
}

/// hyper ends such a body like any other; without a status it is no answer.
#[tokio::test]
async fn an_answer_without_a_status_is_no_success() {
    let address = serve_h2(|_, request, mut respond| async move {
        drain(request).await;
        let _ = respond.send_response(bare_headers(), true).unwrap();
    })
    .await;
    assert_eq!(class_at(address).await, Some(ErrorClass::Unknown));
}

#[tokio::test]
async fn a_page_is_no_answer_also_with_a_200() {
    let address = serve_h2(|_, request, mut respond| async move {
        drain(request).await;
        let page = http::Response::builder().header("content-type", "text/html");
        let mut stream = respond.send_response(page.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from_static(b"<h1>log in</h1>"), true).unwrap();
    })
    .await;
    assert_eq!(class_at(address).await, Some(ErrorClass::Unknown));
}

/// Some peers put a frame without a byte between headers and trailers.
#[tokio::test]
async fn kf61_an_empty_frame_is_no_data() {
    let address = serve_h2(|_, request, mut respond| async move {
        drain(request).await;
        let mut stream = respond.send_response(bare_headers(), false).unwrap();
        stream.send_data(Bytes::new(), false).unwrap();
        stream.send_trailers(status_headers(&[("grpc-status", "14")])).unwrap();
    })
    .await;
    assert_eq!(class_at(address).await, Some(ErrorClass::Transient));
}

/// Streams what it is told to, and hands its callers' messages on.
struct Streamer {
    /// One for each call.
    streams: Mutex<Vec<mpsc::UnboundedReceiver<Result<Order, Status>>>>,
    calls: Arc<Mutex<u32>>,
}

impl Streamer {
    fn new(
        streams: Vec<mpsc::UnboundedReceiver<Result<Order, Status>>>,
    ) -> (Self, Arc<Mutex<u32>>) {
        let calls = Arc::new(Mutex::new(0));
        (Self { streams: Mutex::new(streams), calls: Arc::clone(&calls) }, calls)
    }
}

#[tonic::async_trait]
impl Orders for Streamer {
    async fn get(&self, _: Request<Order>) -> Result<Response<Order>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn watch(&self, _: Request<Order>) -> Result<Response<OrderStream>, Status> {
        *self.calls.lock().unwrap() += 1;
        let stream = self.streams.lock().unwrap().pop().unwrap();
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(stream))))
    }

    /// Says each message again.
    async fn chat(
        &self,
        request: Request<Streaming<Order>>,
    ) -> Result<Response<OrderStream>, Status> {
        *self.calls.lock().unwrap() += 1;
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

async fn streamer() -> (Client, mpsc::UnboundedSender<Result<Order, Status>>, Arc<Mutex<u32>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (streamer, calls) = Streamer::new(vec![receiver]);
    (marked(serve(streamer).await), sender, calls)
}

/// Each message is read before the next one is made: nothing waits for what comes later.
#[tokio::test]
async fn kf52_streams_stay_streams() {
    let (mut client, sender, _) = streamer().await;
    sender.send(Ok(Order::new("0"))).unwrap();
    let mut stream = soon(client.watch(Order::new("17"))).await.unwrap().into_inner();
    for number in 0..3 {
        assert_eq!(soon(stream.next()).await.unwrap().unwrap(), Order::new(&number.to_string()));
        sender.send(Ok(Order::new(&(number + 1).to_string()))).unwrap();
    }
    drop(sender);
    assert_eq!(soon(stream.next()).await.unwrap().unwrap(), Order::new("3"));
    assert!(soon(stream.next()).await.is_none());
}

/// The first message is made when the headers have come, so they must not wait for it.
#[tokio::test]
async fn kf52_a_stream_that_begins_late_is_passed_on() {
    let (mut client, sender, _) = streamer().await;
    let mut stream = soon(client.watch(Order::new("17"))).await.unwrap().into_inner();
    sender.send(Ok(Order::new("0"))).unwrap();
    assert_eq!(soon(stream.next()).await.unwrap().unwrap(), Order::new("0"));
}

/// A caller who speaks only after the headers have come, to a server that speaks only when spoken to.
#[tokio::test]
async fn a_stream_in_both_directions_does_not_lock() {
    let (mut client, _sender, calls) = streamer().await;
    let (says, said) = mpsc::unbounded_channel();
    let heard = soon(client.chat(UnboundedReceiverStream::new(said))).await;
    let mut heard = heard.unwrap().into_inner();
    for word in ["one", "two"] {
        says.send(Order::new(word)).unwrap();
        assert_eq!(soon(heard.next()).await.unwrap().unwrap(), Order::new(word));
    }
    drop(says);
    assert!(soon(heard.next()).await.is_none());
    assert_eq!(*calls.lock().unwrap(), 1);
}

#[tokio::test]
async fn kf25_no_retry_once_the_answer_has_begun() {
    let (mut client, sender, calls) = streamer().await;
    for id in ["0", "1", "2"] {
        sender.send(Ok(Order::new(id))).unwrap();
    }
    sender.send(Err(Status::unavailable("in the middle"))).unwrap();
    let mut stream = soon(client.watch(Order::new("17"))).await.unwrap().into_inner();
    for id in ["0", "1", "2"] {
        assert_eq!(soon(stream.next()).await.unwrap().unwrap(), Order::new(id));
    }
    let status = soon(stream.next()).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "in the middle"));
    assert_eq!(*calls.lock().unwrap(), 1);
}

#[tokio::test]
async fn details_that_are_no_base64_do_not_bring_the_client_down() {
    for place in ["headers", "trailers"] {
        let address = serve_h2(move |_, request, mut respond| async move {
            drain(request).await;
            let status = [("grpc-status", "9"), ("grpc-status-details-bin", "?? no base64 ??")];
            if place == "headers" {
                let mut headers = bare_headers();
                headers.headers_mut().extend(status_headers(&status));
                let _ = respond.send_response(headers, true).unwrap();
            } else {
                let mut stream = respond.send_response(bare_headers(), false).unwrap();
                stream.send_data(message(&Order::new("17")), false).unwrap();
                stream.send_trailers(status_headers(&status)).unwrap();
            }
        })
        .await;
        let mut client = marked(address);
        // tonic panics on them, and the task with it.
        let call = tokio::spawn(async move { client.get(Order::new("17")).await });
        let status = call.await.expect("no panic").unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{place}");
    }
}

/// The attempt still reads its caller's stream, so it is the only one.
#[tokio::test]
async fn kf12_a_call_that_streams_is_sent_once() {
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    let address = serve_h2(move |_, _request, mut respond| {
        *count.lock().unwrap() += 1;
        async move {
            let mut headers = bare_headers();
            headers.headers_mut().extend(status_headers(&[("grpc-status", "14")]));
            let _ = respond.send_response(headers, true).unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await;
    let (says, said) = mpsc::unbounded_channel();
    says.send(Order::new("one")).unwrap();
    let mut client = marked(address);
    let answer = soon(client.chat(UnboundedReceiverStream::new(said))).await;
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(*calls.lock().unwrap(), 1);
}

/// A proxy's page is no answer, whatever its HTTP status.
#[tokio::test]
async fn a_page_of_a_proxy_is_judged_by_its_http_status() {
    let address = serve_h2(|number, request, mut respond| async move {
        drain(request).await;
        if number == 1 {
            return answer(respond, "17");
        }
        let page = http::Response::builder().status(503).header("content-type", "text/html");
        let mut stream = respond.send_response(page.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from_static(b"<h1>busy</h1>"), true).unwrap();
    })
    .await;
    let answer = soon(marked(address).get(Order::new("17"))).await.unwrap();
    assert_eq!(answer.into_inner(), Order::new("17"));
}
