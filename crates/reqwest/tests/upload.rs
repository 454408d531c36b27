//! A large upload through the layers, over a real socket: memory.

mod common;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use common::{answer, serve};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use reqwest::{Body, Client, Method, Request};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{AnyError, Classifier, Refusal};
use tower_triage_reqwest::{ReqwestReplay, reqwest};
use tower_triage_retry::RetryLayer;

const MIB: u64 = 1024 * 1024;
const LIMIT: u64 = 64 * 1024;

/// Frames of 32 KiB, made when they are asked for.
struct Generated(u64);

impl http_body::Body for Generated {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let size = self.0.min(32 * 1024);
        self.0 -= size;
        Poll::Ready((size > 0).then(|| Ok(Frame::data(vec![7; size as usize].into()))))
    }
}

/// The most memory that was in use at once, and why the request was not repeated.
fn upload(bytes: u64, replay: Option<ReqwestReplay>) -> (u64, Option<Refusal>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = runtime.block_on(serve(|request| async {
        let (mut body, mut bytes) = (request.into_body(), 0);
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap().len();
        }
        let mut answer = answer(503);
        answer.headers_mut().insert("x-bytes", bytes.into());
        answer
    }));
    let mut why = None;
    let used = allocation_counter::measure(|| {
        runtime.block_on(async {
            let mut put = Request::new(Method::PUT, format!("http://{address}/").parse().unwrap());
            *put.body_mut() = Some(Body::wrap(Generated(bytes)));
            assert_eq!(put.body().unwrap().size_hint().lower(), 0);
            let client = Client::new();
            let response = match replay {
                None => client.execute(put).await.unwrap(),
                Some(replay) => {
                    let stack = ServiceBuilder::new()
                        .layer(RetryLayer::new(Classifier::new(reqwest())).replay(replay))
                        .map_err(AnyError::from)
                        .service(client);
                    stack.oneshot(put).await.unwrap()
                }
            };
            assert_eq!(response.headers()["x-bytes"], bytes.to_string(), "all of it, once");
            why = common::incident(&response).as_deref().and_then(common::refusal);
        });
    });
    (used.bytes_max, why)
}

#[test]
fn kf14_an_upload_stays_within_the_limit_and_a_mebibyte() {
    upload(MIB, None);
    let (without, _) = upload(256 * MIB, None);
    for (replay, why) in [
        (ReqwestReplay::new(), "the request body is a stream"),
        (ReqwestReplay::new().streams(LIMIT), "the request body grew over the replay limit"),
    ] {
        let (with, refusal) = upload(256 * MIB, Some(replay));
        assert_eq!(refusal, Some(Refusal::NotReplayable(why)));
        assert!(with <= without + LIMIT + MIB, "{why}: {with} bytes, without layers {without}");
        println!("{why}: {} KiB at most, without layers {}", with / 1024, without / 1024);
    }
}
