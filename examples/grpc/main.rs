//! A generated gRPC client over the stack, and a tonic server with moods.
//!
//! A till reads orders, which a retry policy of a service config repeats, and places some, which
//! nothing may repeat. The server shakes, puts its status into the trailers, pushes back, goes down
//! and comes back. At the end each call is accounted for in two independent books, and no order was
//! placed twice, or the exit code says so.

mod shop;
mod warehouse;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use tonic::Code;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower::ServiceBuilder;
use tower_triage::grpc::{
    GrpcReplay, PeekLayer, ReplayBodyLayer, ServiceConfig, StatusDetails, circuit_open, grpc,
    with_status,
};
use tower_triage::{
    AnyError, Backoff, BreakerPolicy, CircuitBreakerLayer, Classifier, ErrorClass, RetryLayer,
};

use crate::shop::{Order, OrdersClient};
use crate::warehouse::{Mood, Warehouse};

/// As a server's owner would publish it.
const SERVICE_CONFIG: &str = r#"{
  "methodConfig": [{
    "name": [{"service": "shop.Orders", "method": "Get"}],
    "retryPolicy": {
      "maxAttempts": 4,
      "initialBackoff": "0.002s",
      "maxBackoff": "0.01s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }],
  "retryThrottling": {"maxTokens": 100, "tokenRatio": 1}
}"#;

/// What happens, and for how many calls.
const STORY: [(Mood, u32); 6] = [
    (Mood::Healthy, 200),
    (Mood::Shaky, 200),
    (Mood::Trailing, 200),
    (Mood::PushingBack, 200),
    (Mood::Down, 200),
    (Mood::Healthy, 200),
];

/// What the client got.
#[derive(Default)]
struct Till {
    by_code: BTreeMap<&'static str, usize>,
    /// Calls that its own breaker refused; they never left.
    refused: usize,
    /// Those that were told how long to wait.
    told_to_wait: usize,
    /// Orders whose placing succeeded.
    placed: Vec<u32>,
}

impl Till {
    fn ok(&self) -> usize {
        self.by_code.get("OK").copied().unwrap_or(0)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (warehouse, address) = Warehouse::open().await?;
    let config = ServiceConfig::parse(SERVICE_CONFIG)?;
    let tokens = config.budget();
    let classifier = Classifier::new(grpc());
    let policy = BreakerPolicy::new()
        .consecutive_failures(20)
        .open_for(Backoff::fixed(Duration::from_millis(50)))
        .build()?;
    let breaker = CircuitBreakerLayer::new(classifier.clone()).name("warehouse").policy(policy);
    let circuit = breaker.handle();
    let stack = ServiceBuilder::new()
        .map_err(with_status)
        .layer(ReplayBodyLayer::new())
        .layer(
            RetryLayer::new(classifier.clone())
                .budget(config.budget())
                .replay(GrpcReplay::new().service_config(config)),
        )
        .layer(breaker)
        .layer(PeekLayer::new())
        .map_request(|request: http::Request<_>| request.map(Body::new))
        .map_err(AnyError::from)
        .service(Endpoint::from_shared(format!("http://{address}"))?.connect_lazy());
    let mut client = OrdersClient::new(stack);

    println!("service config:\n{SERVICE_CONFIG}\n");
    println!("nine of ten calls read an order, one places one, which nothing may repeat\n");
    println!(
        "{:<28}{:>7}{:>7}{:>9}{:>10}{:>10}{:>9}",
        "server", "calls", "ok", "failed", "attempts", "repeated", "tokens"
    );
    let mut till = Till::default();
    let mut number = 0;
    for (mood, calls) in STORY {
        warehouse.enter(mood);
        let before = (warehouse.totals(), till.ok());
        for _ in 0..calls {
            number += 1;
            call(&mut client, number, &mut till).await;
        }
        let ((attempts, repeated), ok) = before;
        let (attempts, repeated, ok) =
            (warehouse.totals().0 - attempts, warehouse.totals().1 - repeated, till.ok() - ok);
        println!(
            "{:<28}{calls:>7}{ok:>7}{:>9}{attempts:>10}{repeated:>10}{:>9.0}",
            mood.name(),
            calls as usize - ok,
            tokens.level(Duration::ZERO),
        );
        // The next chapter begins when the circuit would let a probe through.
        tokio::time::sleep(circuit.time_to_next_probe().unwrap_or_default()).await;
    }

    println!("\nthe client got {:?}", till.by_code);
    println!(
        "{} calls were refused by its open circuit; all of them UNAVAILABLE, {} with the time to wait",
        till.refused, till.told_to_wait,
    );
    let differences = differences(&till, &warehouse, &classifier, number as usize);
    if differences.is_empty() {
        println!("the books agree: {number} calls, and no order was placed twice");
        return Ok(ExitCode::SUCCESS);
    }
    for difference in differences {
        eprintln!("the books DISAGREE: {difference}");
    }
    Ok(ExitCode::FAILURE)
}

/// One call: every tenth places an order, the others read one.
async fn call<T>(client: &mut OrdersClient<T>, number: u32, till: &mut Till)
where
    T: tonic::client::GrpcService<Body>,
    T::Error: Into<tonic::codegen::StdError>,
    T::ResponseBody: tonic::codegen::Body<Data = bytes::Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let order = Order { number };
    let places = number.is_multiple_of(10);
    let answer = match places {
        true => client.place(order).await,
        false => client.get(order).await,
    };
    let code = match answer {
        Ok(_) if places => {
            till.placed.push(number);
            "OK"
        }
        Ok(_) => "OK",
        Err(status) => {
            if circuit_open(&status).is_some() {
                till.refused += 1;
                let details = StatusDetails::of_message(status.details());
                till.told_to_wait += usize::from(details.retry_delay.is_some());
            }
            match status.code() {
                Code::Unavailable => "UNAVAILABLE",
                _ => "something else",
            }
        }
    };
    *till.by_code.entry(code).or_default() += 1;
}

/// What the till wrote down, against what the warehouse and the classifier did.
fn differences(
    till: &Till,
    warehouse: &Warehouse,
    classifier: &Classifier<tower_triage::grpc::GrpcRules>,
    calls: usize,
) -> Vec<String> {
    let book = warehouse.book();
    let mut differences = Vec::new();
    let mut check = |what: &str, one: usize, other: usize| {
        if one != other {
            differences.push(format!("{what}: {one} and {other}"));
        }
    };
    let ok = till.ok();
    check("calls and answers", calls, till.by_code.values().sum());
    let unavailable = till.by_code.get("UNAVAILABLE").copied().unwrap_or(0);
    check("answers that are neither OK nor UNAVAILABLE", calls - ok - unavailable, 0);
    // Each attempt that reached the server was an answer to the caller, or a failure that was counted.
    let failed: u64 = ErrorClass::ALL
        .into_iter()
        .filter(|class| *class != ErrorClass::Rejected)
        .map(|class| classifier.count(class))
        .sum();
    check("attempts at the server and in the classifier", book.calls, ok + failed as usize);
    // A call that was not refused has exactly one first attempt.
    check("first attempts", book.calls - book.repeated, calls - till.refused);
    check("orders placed", book.placed.len(), till.placed.len());
    check("orders placed twice", book.placed.values().filter(|times| **times > 1).count(), 0);
    let unknown = till.placed.iter().filter(|number| !book.placed.contains_key(number)).count();
    check("orders placed that the warehouse does not know", unknown, 0);
    check("refusals without the time to wait", till.refused - till.told_to_wait, 0);
    // The story must have happened.
    check("a story without repeated calls", usize::from(book.repeated == 0), 0);
    check("a story without refused calls", usize::from(till.refused == 0), 0);
    differences
}
