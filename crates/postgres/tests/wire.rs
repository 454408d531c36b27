//! A server that breaks off, answers half, answers nonsense, or never answers: real sockets, and
//! just enough of the protocol.

mod common;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_core::{AnyError, Classifier, Disposition, ErrorClass, Refusal, ServerWord};
use tower_triage_postgres::{
    PostgresRulesExt, Reconnect, SqlFacts, Stage, Transactions, Unit, UnitError, Work, postgres,
};
use tower_triage_timeout::TimeoutLayer;

use crate::common::{Runs, Told, retry, tell, unit};

/// What the server does with one message.
#[derive(Clone, Debug)]
enum Answer {
    Ok,
    /// These bytes, and on.
    Bytes(Vec<u8>),
    /// These bytes, and the end.
    Last(Vec<u8>),
    /// Nothing, and the connection stays open while so much time passes, and then on.
    Silence(Duration),
}

/// Answers each query by its text; the empty text stands for the start of a connection.
type Script = dyn Fn(&str) -> Answer + Send + Sync;

async fn server(script: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let script: Arc<Script> = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = Arc::clone(&script);
            tokio::spawn(async move { drop(serve(stream, &*script).await) });
        }
    });
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user("somebody");
    config
}

async fn serve(mut stream: TcpStream, script: &Script) -> std::io::Result<()> {
    let length = stream.read_u32().await?;
    stream.read_exact(&mut vec![0; length as usize - 4]).await?;
    let welcome = [message(b'R', &[0; 4]), message(b'K', &[0; 8]), ready(b'I')].concat();
    if !answer(&mut stream, script(""), welcome).await? {
        return Ok(());
    }
    let mut status = b'I';
    loop {
        let kind = stream.read_u8().await?;
        let length = stream.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        stream.read_exact(&mut body).await?;
        if kind == b'X' {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
        status = match &*text {
            "COMMIT" | "ROLLBACK" => b'I',
            text if text.starts_with("START") => b'T',
            _ => status,
        };
        let usual = [message(b'C', b"DONE\0"), ready(status)].concat();
        if !answer(&mut stream, script(&text), usual).await? {
            return Ok(());
        }
    }
}

/// Does the connection go on?
async fn answer(stream: &mut TcpStream, answer: Answer, usual: Vec<u8>) -> std::io::Result<bool> {
    match answer {
        Answer::Ok => stream.write_all(&usual).await?,
        Answer::Bytes(bytes) => stream.write_all(&bytes).await?,
        Answer::Last(bytes) => {
            stream.write_all(&bytes).await?;
            return Ok(false);
        }
        Answer::Silence(time) => {
            tokio::time::pause();
            tokio::time::advance(time).await;
            tokio::time::resume();
        }
    }
    Ok(true)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

/// An ErrorResponse, with a DETAIL that is nobody's business.
fn error(severity: &str, code: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let fields = [
        (b'S', severity.as_bytes()),
        (b'V', severity.as_bytes()),
        (b'C', code),
        (b'M', b"no"),
        (b'D', b"Key (card)=(4242)"),
    ];
    for (kind, text) in fields {
        body.push(kind);
        body.extend_from_slice(text);
        body.push(0);
    }
    body.push(0);
    message(b'E', &body)
}

fn transactions(config: Config) -> Transactions<Reconnect> {
    Transactions::new(Reconnect::new(config, NoTls))
}

fn one_statement(runs: &Runs) -> Unit<impl Work<Output = ()> + Clone + 'static> {
    unit(runs, |_, tx| Box::pin(async move { Ok(tx.batch_execute("WORK").await?) }))
}

async fn call(script: impl Fn(&str) -> Answer + Send + Sync + 'static, runs: &Runs) -> Told<()> {
    let stack =
        ServiceBuilder::new().layer(retry(postgres())).service(transactions(server(script).await));
    tell(stack.oneshot(one_statement(runs))).await
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_commit_is_repeated_and_after_it_not() {
    let half = message(b'C', b"DONE\0")[..4].to_vec();
    for (at, repeated) in
        [("", true), ("START TRANSACTION", true), ("WORK", true), ("COMMIT", false)]
    {
        for answer in [Answer::Last(Vec::new()), Answer::Last(half.clone())] {
            let (runs, broken) = (Runs::default(), Runs::default());
            let script = {
                let (answer, broken) = (answer.clone(), broken.clone());
                move |text: &str| match text {
                    text if text == at && broken.begin() == 1 => answer.clone(),
                    _ => Answer::Ok,
                }
            };
            let told = call(script, &runs).await;
            assert_eq!(told.failures.len(), 1, "{at} {told:?}");
            assert_eq!(told.failures[0].class, ErrorClass::Transient, "{at} {told:?}");
            assert_eq!(told.outcome.is_ok(), repeated, "{at} {told:?}");
            let unknown = told.failures[0].disposition == Disposition::MaybeProcessed;
            assert_eq!(unknown, !repeated, "{at} {told:?}");
            let refusal = (!repeated).then_some(Refusal::NotIdempotent);
            assert_eq!(told.refusal, refusal, "{at}");
            assert_eq!(runs.count(), if at == "WORK" { 2 } else { 1 }, "{at}");
        }
    }
}

/// The statement ahead of the COMMIT has failed, so the COMMIT commits nothing, even if the
/// connection is lost together with its answer.
#[tokio::test]
async fn what_is_known_not_to_be_committed_is_repeated() {
    let (runs, checks) = (Runs::default(), Runs::default());
    let checked = checks.clone();
    let script = move |text: &str| match text {
        "SELECT 1" if checked.begin() == 1 => Answer::Last(error("FATAL", b"57P01")),
        _ => Answer::Ok,
    };
    let told = call(script, &runs).await;
    assert_eq!(told.reasons(), [(ErrorClass::Transient, "admin_shutdown")]);
    assert_eq!(told.failures[0].disposition, Disposition::NotProcessed);
    told.outcome.unwrap();
    assert_eq!((runs.count(), checks.count()), (2, 2));
}

#[tokio::test]
async fn a_refusal_at_the_door_was_not_sent() {
    for (code, class) in [
        ("57P03", ErrorClass::Transient),
        ("53300", ErrorClass::Throttled),
        ("28P01", ErrorClass::Auth),
        ("3D000", ErrorClass::Permanent),
    ] {
        let runs = Runs::default();
        let script = move |_: &str| Answer::Last(error("FATAL", code.as_bytes()));
        let told = call(script, &runs).await;
        assert!(told.failures.iter().all(|failure| failure.class == class), "{code} {told:?}");
        assert!(told.failures.iter().all(|failure| !failure.disposition.may_be_processed()));
        let repeated = matches!(class, ErrorClass::Transient | ErrorClass::Throttled);
        assert_eq!(told.failures.len(), if repeated { 3 } else { 1 }, "{code}");
        let stage = told.outcome.unwrap_err().find::<UnitError>().unwrap().stage();
        assert_eq!((stage, runs.count()), (Stage::Connect, 0));
    }
}

/// A proxy in front of the server says FATAL 08P01 for each trouble of its own.
#[tokio::test]
async fn a_proxy_that_ends_the_session_under_a_commit_leaves_the_outcome_open() {
    let proxy = || postgres().sqlstate(&SqlState::PROTOCOL_VIOLATION, ErrorClass::Transient);
    for (at, repeated) in [("WORK", true), ("COMMIT", false)] {
        let (runs, troubles) = (Runs::default(), Runs::default());
        let config = server(move |text| match text {
            text if text == at && troubles.begin() == 1 => Answer::Last(error("FATAL", b"08P01")),
            _ => Answer::Ok,
        })
        .await;
        let stack = ServiceBuilder::new().layer(retry(proxy())).service(transactions(config));
        let told = tell(stack.oneshot(one_statement(&runs))).await;
        assert_eq!(told.reasons(), [(ErrorClass::Transient, "sqlstate_override")]);
        assert_eq!(told.outcome.is_ok(), repeated, "{at}");
        assert_eq!(runs.count(), if repeated { 2 } else { 1 });
    }
}

#[tokio::test]
async fn kf57_details_stay_out_of_the_record() {
    let config = server(|text| match text {
        "WORK" => Answer::Bytes([error("ERROR", b"23505"), ready(b'E')].concat()),
        _ => Answer::Ok,
    })
    .await;
    let outcome = transactions(config).oneshot(one_statement(&Runs::default())).await;
    let told = Classifier::new(postgres()).explain(outcome.as_ref());
    assert_eq!(told.as_str(), "the transaction was rolled back: ERROR 23505: no");
}

/// The attempt's limit drops the call; the server has not said a word.
#[tokio::test]
async fn a_server_that_never_answers_meets_the_time_limit() {
    const LIMIT: Duration = Duration::from_secs(10);
    for (at, idempotent, attempts) in
        [("WORK", false, 1), ("WORK", true, 2), ("COMMIT", false, 1), ("", false, 1)]
    {
        let config = server(move |text| match text {
            text if text == at => Answer::Silence(2 * LIMIT),
            _ => Answer::Ok,
        })
        .await;
        let classifier = Classifier::new(postgres());
        let limit = TimeoutLayer::new(classifier, LIMIT).unwrap();
        let stack = ServiceBuilder::new()
            .layer(retry(postgres()))
            .layer(limit)
            .service(transactions(config));
        let told =
            tell(stack.oneshot(one_statement(&Runs::default()).idempotent(idempotent))).await;
        assert_eq!(told.reasons(), vec![(ErrorClass::Timeout, "elapsed"); attempts], "{at}");
        assert!(told.outcome.is_err());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn once(config: Config) -> Result<(), AnyError> {
    transactions(config).oneshot(Unit::new("take", common::TakeWork)).await
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever stands where the code should be: no panic, and the class of the pure decision.
    #[test]
    fn any_code_on_the_wire_has_a_verdict(code in prop::collection::vec(1_u8..=255, 0..9), commits: bool) {
        let said = String::from_utf8_lossy(&code).into_owned();
        let at = if commits { "COMMIT" } else { "WORK" };
        let error = runtime().block_on(async move {
            let config = server(move |text| match text {
                text if text == at => Answer::Bytes([error("ERROR", &code), ready(b'E')].concat()),
                _ => Answer::Ok,
            })
            .await;
            once(config).await
        });
        let facts = SqlFacts { commit_in_flight: commits, ..SqlFacts::new(&said) };
        let rules = Classifier::new(postgres());
        let got = rules.judge(&"take".into(), error.as_ref()).failure().unwrap();
        prop_assert_eq!(got.server, ServerWord::Silent);
        match facts.verdict().failure() {
            Some(expected) => prop_assert_eq!(got, expected),
            None => prop_assert_eq!(got.class, ErrorClass::Unknown),
        }
    }

    /// Nonsense instead of an answer: an error, in bounded time, and never a success made of it.
    #[test]
    fn nonsense_on_the_wire_is_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        at in prop::sample::select(vec!["", "START TRANSACTION", "WORK", "COMMIT"]),
    ) {
        // The one thing that is no nonsense.
        prop_assume!(!bytes.first().is_some_and(|kind| b"CRZ".contains(kind)));
        let outcome = runtime().block_on(async move {
            let config = server(move |text| match text {
                text if text == at => Answer::Last(bytes.clone()),
                _ => Answer::Ok,
            })
            .await;
            let call = once(config);
            tokio::time::timeout(Duration::from_secs(20), call).await.expect("it ends")
        });
        let error = outcome.unwrap_err();
        let stage = error.find::<UnitError>().unwrap().stage();
        let failure = Classifier::new(postgres()).judge::<(), _>(&"take".into(), Err(&error));
        let unknown = failure.failure().unwrap().disposition.may_be_processed();
        prop_assert!(!unknown || stage.commit_in_flight());
    }
}
