//! A chain of two models over a provider that fails in every way that providers know.
//!
//! Prompts go to the large model: what time heals is repeated, what it declines goes to the small
//! one. Each prompt has its fate, and at the end the caller's book and the provider's own must say
//! the same, or the exit code says so.

mod provider;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::task::JoinSet;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::http::HttpReplay;
use tower_triage::llm::{PeekBody, PeekLayer, llm};
use tower_triage::{
    AnyError, Backoff, Budget, CircuitBreakerLayer, Classifier, ErrorClass, FallbackLayer,
    Incident, Jitter, Observer, Resolution, RetryLayer, RetryPolicy,
};

use crate::provider::{Book, End, Fate, Provider};

const PROMPTS: u64 = 240;

type Prompt = Request<Full<Bytes>>;
type Answer = http::Response<PeekBody<hyper::body::Incoming>>;
type Chain = BoxCloneSyncService<Prompt, Answer, AnyError>;

/// Keeps the incidents.
#[derive(Clone, Default)]
struct Incidents(Arc<Mutex<Vec<Incident>>>);

impl Observer for Incidents {
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(incident.clone());
    }
}

fn prompt(address: SocketAddr, model: &str, number: u64) -> Prompt {
    Request::post(format!("http://{address}/v1/messages"))
        .body(Full::from(format!("{{\"model\":\"{model}\",\"prompt\":{number}}}")))
        .expect("a valid request")
}

fn chain(
    classifier: &Classifier<tower_triage::llm::LlmRules>,
    breaker: CircuitBreakerLayer<tower_triage::llm::LlmRules>,
) -> Result<Chain, Box<dyn Error>> {
    let quick = Backoff::exponential(Duration::from_millis(20), 2.0).jitter(Jitter::Full);
    let plan = RetryPolicy::default().backoff(&quick).build()?;
    let to_small = |request: Prompt, _: tower_triage::fallback::Failed<'_, Answer, AnyError>| {
        // The number is the only thing that the prompt says.
        let number = request.extensions().get::<u64>().copied().unwrap_or_default();
        request.map(|_| Full::from(format!("{{\"model\":\"small\",\"prompt\":{number}}}")))
    };
    let stack = ServiceBuilder::new()
        .layer(
            FallbackLayer::new(classifier.clone())
                .or_replan([ErrorClass::Declined, ErrorClass::Quota], to_small),
        )
        .layer(
            RetryLayer::new(classifier.clone())
                .policy(plan)
                // Two of three prompts fail here by design: no budget would allow that.
                .budget(Budget::unlimited())
                .replay(HttpReplay::new()),
        )
        .layer(breaker.clone())
        .layer(PeekLayer::new().report_through(breaker))
        .map_err(AnyError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());
    Ok(BoxCloneSyncService::new(stack))
}

/// Sends one prompt and reads its answer to the end.
async fn ask(chain: Chain, request: Prompt) -> Result<End, AnyError> {
    let answer = chain.oneshot(request).await?;
    let failed = answer.status().is_client_error() || answer.status().is_server_error();
    let text = answer.into_body().collect().await.map_err(AnyError::from)?.to_bytes();
    let says = |what: &str| text.windows(what.len()).any(|part| part == what.as_bytes());
    Ok(match () {
        () if failed || says("blockReason") || says("content_filter") => End::Failure,
        () if says("overloaded_error") => End::BrokenAnswer,
        () if says("\"small\"") => End::AnswerOfSmall,
        () => End::Answer,
    })
}

/// The caller's book: how the prompts of each fate ended.
type Ends = BTreeMap<(Fate, End), usize>;

/// Prints both books side by side, and gives what is not as it had to be.
fn report(ends: &Ends, book: &Book) -> Vec<String> {
    let each = usize::try_from(PROMPTS).unwrap_or(usize::MAX) / Fate::ALL.len();
    let mut differences = Vec::new();
    println!(
        "{:<30} {:>8} {:>6} {:>6}   ended in",
        "what the large model does", "prompts", "large", "small"
    );
    for fate in Fate::ALL {
        let called = |model| book.get(&(fate, model)).copied().unwrap_or(0);
        let (large, small) = (called("large"), called("small"));
        let expected = fate.expected();
        let end = match expected.end {
            End::Answer => "an answer",
            End::AnswerOfSmall => "the small model's answer",
            End::BrokenAnswer => "half an answer, and an incident",
            End::Failure => "the failure",
        };
        println!("{:<30} {each:>8} {large:>6} {small:>6}   {end}", fate.name());
        if (large, small) != (expected.large * each, expected.small * each) {
            differences
                .push(format!("{fate:?}: {large} calls of the large model, {small} of the small"));
        }
        if ends.get(&(fate, expected.end)) != Some(&each) {
            differences.push(format!("{fate:?}: not all ended as {:?}: {ends:?}", expected.end));
        }
    }
    differences
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let provider = Provider::start().await?;
    let classifier = Classifier::new(llm());
    let incidents = Incidents::default();
    classifier.observe(incidents.clone());
    let breaker = CircuitBreakerLayer::new(classifier.clone()).name("large model");
    let handle = breaker.handle();
    // What fails here, fails by design: the breaker only counts.
    handle.disable();
    let chain = chain(&classifier, breaker)?;
    println!("provider http://{}: a large model, and a small one in reserve", provider.address);
    println!("{PROMPTS} prompts, each with its fate\n");

    let mut ends = Ends::new();
    let mut calls = JoinSet::new();
    for number in 0..PROMPTS {
        let fate = Fate::ALL[usize::try_from(number)? % Fate::ALL.len()];
        let mut request = prompt(provider.address, "large", number);
        request.extensions_mut().insert(number);
        let call = ask(chain.clone(), request);
        calls.spawn(async move { (fate, call.await) });
    }
    while let Some(joined) = calls.join_next().await {
        let (fate, end) = joined?;
        *ends.entry((fate, end?)).or_default() += 1;
    }

    let book = provider.book();
    let mut differences = report(&ends, &book);
    let incidents = incidents.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let each = usize::try_from(PROMPTS)? / Fate::ALL.len();
    println!("\nincidents by resolution, one per prompt that met a failure");
    for (resolution, fates) in [
        (Resolution::RecoveredByRetry, 5),
        (Resolution::AnsweredByFallback, 3),
        // Refused by both, malformed, and failed behind the first token.
        (Resolution::Failed, 3),
    ] {
        let count = incidents.iter().filter(|incident| incident.resolution == resolution).count();
        println!("  {resolution:<24} {count:>4}");
        if count != fates * each {
            differences.push(format!("{resolution}: {count} incidents, expected {}", fates * each));
        }
    }
    let counted = usize::try_from(handle.counts().failures)?;
    // Twice overloaded; failed inside a 200, before and after the first token, and cut off.
    println!(
        "failures that the breaker counted: {counted}, {each} of them after the call had ended"
    );
    if counted != 6 * each {
        differences.push(format!("the breaker counted {counted}, expected {}", 6 * each));
    }

    println!("\nthree stories");
    for resolution in
        [Resolution::RecoveredByRetry, Resolution::AnsweredByFallback, Resolution::Failed]
    {
        let longest = incidents.iter().filter(|incident| incident.resolution == resolution);
        if let Some(incident) = longest.max_by_key(|incident| incident.steps.len()) {
            println!("{}", incident.timeline(30));
        }
    }
    if differences.is_empty() {
        println!("the books agree: each of {PROMPTS} prompts ended as it had to");
        return Ok(ExitCode::SUCCESS);
    }
    for difference in differences {
        eprintln!("the books DISAGREE: {difference}");
    }
    Ok(ExitCode::FAILURE)
}
