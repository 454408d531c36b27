//! An HTTP server that remembers what it was sent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    came: Arc<Notify>,
}

impl Server {
    /// Answers with the status that `f` gives for an order's number and how many came before.
    pub(crate) async fn start(
        f: impl Fn(u32, usize) -> u16 + Copy + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, came) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::<Notify>::default());
        let (all, notify) = (Arc::clone(&seen), Arc::clone(&came));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (all, notify) = (Arc::clone(&all), Arc::clone(&notify));
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let (all, notify) = (Arc::clone(&all), Arc::clone(&notify));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let target = head.uri.to_string();
                        let path = head.uri.path().rsplit('/').next().unwrap_or_default();
                        let number = path.parse().unwrap_or(0);
                        let before = {
                            let mut all = all.lock().unwrap();
                            all.push(Seen {
                                method: head.method.to_string(),
                                target,
                                headers: head.headers,
                                body: String::from_utf8(body.to_vec()).unwrap(),
                            });
                            all.len() - 1
                        };
                        notify.notify_one();
                        let status = f(number, before);
                        let response = http::Response::builder().status(status);
                        Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, seen, came }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Until so many requests came.
    pub(crate) async fn wait(&self, requests: usize) {
        while self.seen().len() < requests {
            self.came.notified().await;
        }
    }
}
