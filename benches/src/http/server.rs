//! A server on loopback, on a thread of its own, that answers every request with a few bytes.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::{Body, Response};

/// Starts the server, for HTTP/1.1 and HTTP/2 with prior knowledge; it lives as long as the process.
///
/// # Errors
/// No socket, no runtime, or no thread is to be had.
pub fn start() -> std::io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (running, runs) = oneshot::channel();
    thread::Builder::new().name("server".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("it does not block");
            let _ = running.send(());
            accept(listener).await;
        });
    })?;
    runs.blocking_recv().map_err(std::io::Error::other)?;
    Ok(address)
}

async fn accept(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let answer = service_fn(async |_request| {
                Ok::<_, Infallible>(Response::new(Body::new(Bytes::from_static(b"an order"))))
            });
            let builder = Builder::new(TokioExecutor::new());
            // The end of a connection is the client's to choose.
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
