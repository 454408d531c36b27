//! Errors of real reqwest clients, classified by type; servers are scripts that wait for what the
//! client sends, never for time.

mod common;

use std::error::Error;
use std::io;
use std::time::Duration;

use common::{read_head, scripted, statuses, write};
use reqwest::Client;
use tower_triage_core::{
    AnyError, BoxError, Classify, ClassifyError, Disposition, ErrorClass, Failure, Vote,
};
use tower_triage_reqwest::{ReqwestErrors, reqwest, reqwest_failure};
use tower_triage_test_support::closed_port;

/// The verdict, the same through every type that may hold the error.
fn judge(error: reqwest::Error) -> Failure {
    let bare = ReqwestErrors.error(&error);
    let theirs = reqwest_middleware::Error::from(error);
    assert_eq!(ReqwestErrors.error(&theirs), bare);
    let any = AnyError::from(theirs);
    let outcome: Result<&reqwest::Response, _> = Err(&any);
    assert_eq!(reqwest().classify(outcome), bare.into());
    let boxed: BoxError = any.into_inner();
    assert_eq!(ReqwestErrors.error(&boxed), bare);
    let twice: BoxError = io::Error::other(io::Error::other(boxed)).into();
    assert_eq!(ReqwestErrors.error(&twice), bare);
    bare
}

async fn failure(client: Client, url: &str) -> Failure {
    judge(client.get(url).send().await.expect_err("the server does not answer"))
}

#[tokio::test]
async fn a_refused_connection_was_not_sent() {
    let address = closed_port();
    let failure = failure(Client::new(), &format!("http://{address}/")).await;
    assert_eq!((failure.class, failure.disposition), (ErrorClass::Transient, Disposition::NotSent));
    assert_eq!((failure.vote, failure.reason), (Vote::Failure, "connection_refused"));
}

#[tokio::test]
async fn kf07_a_reset_is_one_however_it_is_wrapped() {
    let address = scripted(|mut stream, _| async move {
        read_head(&mut stream).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let failure = failure(Client::new(), &format!("http://{address}/")).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    assert_eq!(failure.reason, "connection_reset");
    let bare = reqwest_failure(&io::Error::from(io::ErrorKind::ConnectionReset));
    assert_eq!(bare, failure);
}

#[tokio::test]
async fn an_end_without_an_answer_may_be_processed() {
    let address = scripted(|mut stream, _| async move {
        read_head(&mut stream).await.unwrap();
    })
    .await;
    let failure = failure(Client::new(), &format!("http://{address}/")).await;
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
    assert_eq!(failure.reason, "incomplete_message");
}

#[tokio::test]
async fn half_an_answer_fails_in_the_body() {
    let address = scripted(|mut stream, _| async move {
        read_head(&mut stream).await.unwrap();
        write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    })
    .await;
    let response = Client::new().get(format!("http://{address}/")).send().await.unwrap();
    let failure = judge(response.bytes().await.unwrap_err());
    assert_eq!((failure.class, failure.vote), (ErrorClass::Transient, Vote::Failure));
    assert_eq!(failure.disposition, Disposition::MaybeProcessed);
}

#[tokio::test]
async fn what_is_not_http_is_a_defect() {
    let address = scripted(|mut stream, _| async move {
        read_head(&mut stream).await.unwrap();
        write(&mut stream, "SSH-2.0-OpenSSH\r\n\r\n").await;
    })
    .await;
    let failure = failure(Client::new(), &format!("http://{address}/")).await;
    assert_eq!((failure.class, failure.reason), (ErrorClass::Internal, "http_parse"));
}

/// A server that never answers: reqwest's own limits.
#[tokio::test]
async fn its_own_timeouts_are_timeouts() {
    let address =
        scripted(|mut stream, _| async move { while read_head(&mut stream).await.is_ok() {} });
    let url = format!("http://{}/", address.await);
    let short = Duration::from_millis(20);
    for client in [Client::builder().timeout(short), Client::builder().read_timeout(short)] {
        let failure = failure(client.build().unwrap(), &url).await;
        assert_eq!(failure.class, ErrorClass::Timeout);
        assert_eq!(
            (failure.vote, failure.disposition),
            (Vote::Failure, Disposition::MaybeProcessed)
        );
    }
}

/// A limit of time inside of the connector: a connection is never made, and so nothing is sent.
#[tokio::test]
async fn a_timeout_while_connecting_was_not_sent() {
    #[derive(Clone)]
    struct Nowhere;
    impl reqwest::dns::Resolve for Nowhere {
        fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(std::future::pending())
        }
    }
    let client = Client::builder()
        .dns_resolver(std::sync::Arc::new(Nowhere))
        .connect_timeout(Duration::from_millis(20))
        .build()
        .unwrap();
    let failure = failure(client, "http://nowhere.test/").await;
    assert_eq!((failure.class, failure.disposition), (ErrorClass::Timeout, Disposition::NotSent));
    assert!(failure.repeatable(false, false), "whatever the method");
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_was_not_sent() {
    #[derive(Clone)]
    struct Unknown;
    impl reqwest::dns::Resolve for Unknown {
        fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
            let error: BoxError = "no such name".into();
            Box::pin(std::future::ready(Err(error)))
        }
    }
    let client = Client::builder().dns_resolver(std::sync::Arc::new(Unknown)).build().unwrap();
    let failure = failure(client, "http://unknown.test/").await;
    assert_eq!((failure.class, failure.disposition), (ErrorClass::Transient, Disposition::NotSent));
}

#[tokio::test]
async fn what_cannot_be_built_is_the_callers() {
    for url in ["nowhere", "http://", "ftp://example.com/"] {
        let failure = failure(Client::new(), url).await;
        assert_eq!((failure.class, failure.vote), (ErrorClass::Permanent, Vote::Ignore), "{url}");
        assert_eq!(failure.disposition, Disposition::NotSent);
    }
}

#[tokio::test]
async fn an_error_for_a_status_is_judged_by_the_status() {
    for (status, class) in
        [(404, ErrorClass::Permanent), (429, ErrorClass::Throttled), (503, ErrorClass::Transient)]
    {
        let response =
            reqwest::Response::from(http::Response::builder().status(status).body("").unwrap());
        let error = response.error_for_status().unwrap_err();
        assert_eq!(error.status().unwrap().as_u16(), status);
        assert_eq!(judge(error).class, class);
    }
}

/// h2's reasons come through reqwest; its own retries of what a peer refused are switched off.
#[tokio::test]
async fn a_refused_stream_was_not_processed() {
    let address = scripted(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
    })
    .await;
    let client =
        Client::builder().http2_prior_knowledge().retry(reqwest::retry::never()).build().unwrap();
    let failure = failure(client, &format!("http://{address}/")).await;
    assert_eq!(failure.disposition, Disposition::NotProcessed);
    assert_eq!((failure.vote, failure.reason), (Vote::Ignore, "h2_refused_stream"));
}

/// A body that is not what it says: a defect, whoever made it.
#[tokio::test]
async fn an_explanation_has_no_url() {
    let address = closed_port();
    let url = format!("http://{address}/path?token=secret");
    let error = Client::new().get(url).send().await.unwrap_err();
    assert!(error.to_string().contains("secret"), "reqwest's own text has it");
    let mut text = String::new();
    ReqwestErrors.explain(&error, &mut text);
    assert!(text.starts_with("error sending request: "), "{text}");
    assert!(!text.contains("secret") && !text.contains("http://"), "{text}");
    let any = AnyError::from(reqwest_middleware::Error::from(error));
    let mut same = String::new();
    ReqwestErrors.explain(&any, &mut same);
    assert_eq!(same, text);
}

/// Only what is known by type has a class.
#[test]
fn an_error_of_nobodys_is_unknown() {
    #[derive(Debug)]
    struct Own;
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("connection reset by peer, timed out, 503")
        }
    }
    impl Error for Own {}
    assert_eq!(reqwest_failure(&Own).class, ErrorClass::Unknown);
}

#[tokio::test]
async fn a_429_in_a_middle_of_a_stack_is_no_error_at_all() {
    let (address, _) = statuses(&[429]).await;
    let response = Client::new().get(format!("http://{address}/")).send().await.unwrap();
    let outcome: Result<_, &AnyError> = Ok(&response);
    assert_eq!(reqwest().classify(outcome).failure().unwrap().class, ErrorClass::Throttled);
}
