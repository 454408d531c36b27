//! A shop's client on reqwest: prices are asked for again, orders are not placed twice, a body goes
//! along with a redirect, and a host that is down is left alone.
//!
//! The shop (a local axum server) keeps its own books. At the end they must agree with what the client
//! was told, or the exit code says so.

mod shop;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use reqwest::{Body, Client, Request, Response};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::incident::scope;
use tower_triage::reqwest::{Marked, MiddlewareLayer, ReqwestReplay, reqwest};
use tower_triage::{
    AnyError, Backoff, BreakerPolicy, CircuitOpen, Classifier, Desk, Incident, RetryPolicy, preset,
};

use crate::shop::{Books, Shop, Token};

type Stack = BoxCloneSyncService<Request, Response, AnyError>;

/// Escalation, retry and a breaker per host around a reqwest client, and a middleware of
/// reqwest-middleware below them, which signs each attempt.
fn stack(client: &Client, token: Token) -> Result<Stack, tower_triage::ConfigError> {
    let quick = Backoff::exponential(Duration::from_millis(20), 2.0);
    let retry = RetryPolicy::interactive().backoff(&quick).build()?;
    let breaker = BreakerPolicy::new().consecutive_failures(3).build()?;
    let layers = preset::reqwest_client(Classifier::new(reqwest()), Desk::log())
        .retry(|layer| layer.policy(retry).replay(ReqwestReplay::new().streams(64 * 1024)))
        .breaker(|layer| layer.policy(breaker));
    let stack = ServiceBuilder::new()
        .layer(layers)
        .layer(MiddlewareLayer::new(client).with(token))
        .map_err(AnyError::from)
        .service(client.clone());
    Ok(BoxCloneSyncService::new(stack))
}

/// Sends it; prints what came of it, and the story if there is one.
async fn send(stack: &Stack, what: &str, request: Request) -> Result<Response, AnyError> {
    let (outcome, incident) = scope(stack.clone().oneshot(request)).await;
    let sent = |incident: &Incident| {
        incident.failure.is_none_or(|failure| failure.disposition.may_be_processed())
    };
    let told = match &outcome {
        Ok(response) => response.status().to_string(),
        Err(error) => match error.find::<CircuitOpen>() {
            Some(open) => format!("not sent: {open}"),
            None if incident.as_ref().is_some_and(sent) => {
                "no answer, and nobody knows what was done".to_owned()
            }
            None => "no connection, and nothing was done".to_owned(),
        },
    };
    println!("{what:<58} {told}");
    if let Some(incident) = incident.as_ref().filter(|incident| incident.attempts > 1) {
        println!("{}", chart(incident));
    }
    outcome
}

fn chart(incident: &Incident) -> String {
    incident.timeline(30).to_string().lines().skip(1).map(|line| format!("{line}\n")).collect()
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let shop = Shop::open().await?;
    let at = |path: &str| format!("http://{}{path}", shop.address);
    let client = Client::builder().build()?;
    let token = Token::default();
    let stack = stack(&client, token.clone())?;
    println!("the shop is at {}\n", at("/"));

    let get = client.get(at("/prices")).build()?;
    let prices = send(&stack, "prices, from a shop that is busy twice", get).await?;
    assert_eq!(prices.text().await?, "17.50");

    let post = client.post(at("/orders")).body("a lamp").build()?;
    let lost = send(&stack, "an order, and the line goes dead", post).await;
    assert!(lost.is_err(), "an order is not repeated blindly");

    let post =
        client.post(at("/orders")).header("idempotency-key", "k-1").body("a chair").build()?;
    send(&stack, "an order with an Idempotency-Key, and the line goes dead", post).await?;

    let put = client.put(at("/photo")).body("a picture").build()?;
    let moved = send(&stack, "a photo, to a place that has moved (307)", put).await?;
    assert_eq!(moved.url().path(), "/archive");

    let pages = ["page one, ", "page two"].map(Ok::<_, std::io::Error>);
    let stream = Body::wrap_stream(futures_util::stream::iter(pages));
    let put = client.put(at("/catalogue")).body(stream).build()?;
    send(&stack, "a catalogue that streams, kept for a second attempt", put).await?;

    let nobody = shop::closed_port().await?;
    let mut refused = 0;
    for _ in 0..3 {
        let get = client.get(format!("http://{nobody}/")).build()?;
        let outcome = send(&stack, "a shop that is closed", get).await;
        refused += usize::from(outcome.is_err_and(|error| error.find::<CircuitOpen>().is_some()));
    }
    let get = client.get(at("/prices")).build()?;
    send(&stack, "the first one has a breaker of its own", get).await?;

    // The same request with a mark, which a plain one could not show.
    let marked = Marked::from(client.get(at("/prices")).build()?)
        .with(tower_triage::http::RouteTemplate::new("/prices"));
    println!("\n{marked:?} is called `{}`", name_of(&marked));

    let books = shop.books();
    println!("\n{books}");
    let expected = Books {
        prices: 4,
        lamps: 1,
        chairs: 1,
        photos: vec!["a picture".to_owned()],
        catalogues: vec!["page one, page two".to_owned()],
        tokens: books.tokens.clone(),
    };
    // Each attempt was signed anew, those that never arrived too.
    let signed = token.signed();
    let fresh = books.tokens.windows(2).all(|pair| pair[0] < pair[1]);
    if books == expected && fresh && signed > books.tokens.len() as u64 && refused >= 2 {
        println!("the books agree: {signed} attempts signed, {refused} calls not even tried");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("the books DISAGREE: expected {expected:?}, {signed} signed, {refused} refused");
    Ok(ExitCode::FAILURE)
}

fn name_of(request: &Marked) -> tower_triage::Operation {
    use tower_triage::Describe as _;
    reqwest().operation(request)
}
