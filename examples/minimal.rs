//! The client of the README, against a local server that fails once.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_triage::{AnyError, BoxError, Classifier, Desk, http::http, preset};

#[path = "flaky_server.rs"]
mod flaky_server;

async fn poll_orders(url: &str) -> Result<(), BoxError> {
    // Once per process: breaker and retry budget live in the layer, and are shared by its clones.
    let mut client = ServiceBuilder::new()
        .layer(preset::http_client(Classifier::new(http()), Desk::log()))
        .map_err(AnyError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());

    for _ in 0..3 {
        let request = Request::get(url).body(Full::<Bytes>::default())?;
        let response = client.ready().await?.call(request).await?;
        println!("{}", response.status());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let address = flaky_server::start().await?;
    let url = format!("http://{address}/orders");
    let (polled, incident) = tower_triage::incident::scope(poll_orders(&url)).await;
    polled?;
    let incident = incident.ok_or("the first attempt should have failed")?;
    println!("{}", incident.timeline(40));
    Ok(())
}
