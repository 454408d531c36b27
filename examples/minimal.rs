//! The client of the README, against a local server that fails once.

use std::error::Error;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::{AnyError, Classifier, Desk, http::http, preset};

#[path = "flaky_server.rs"]
mod flaky_server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = flaky_server::start().await?;

    let classifier = Classifier::new(http());
    let client = ServiceBuilder::new()
        .layer(preset::http_client(classifier, Desk::log()))
        .map_err(AnyError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());

    let request = Request::get(format!("http://{address}/orders")).body(Full::<Bytes>::default())?;
    let (response, incident) = tower_triage::incident::scope(client.oneshot(request)).await;
    println!("answer: {}", response?.status());
    println!("{}", incident.ok_or("the first attempt should have failed")?.timeline(40));
    Ok(())
}
