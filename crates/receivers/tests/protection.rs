//! Retry, breaker, time limit, pace: time is stepped, there is no network.

mod common;

use std::time::Duration;

use common::{Answer, Network, Post, escalation, gaps, resolve};
use tokio::time::Instant;
use tower::ServiceExt;
use tower_triage_core::{BoxError, ErrorClass};
use tower_triage_escalate::{Desk, DeskPolicy, GivenUp, Receiver, Route, Routes};
use tower_triage_receivers::{Alertmanager, Client, PagerDuty, SendError, Slack, WebhookSink};

const SECOND: Duration = Duration::from_secs(1);
const HOOK: &str = "https://hooks.example/services/T0/B0/hunter2";

fn hook(network: &Network) -> WebhookSink {
    WebhookSink::with_client(Client::new(network.clone()), HOOK).unwrap()
}

/// What it failed with for good.
fn given_up(error: BoxError) -> SendError {
    let error = error.downcast::<GivenUp>().expect("it is final");
    *error.into_inner().downcast::<SendError>().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_time_can_heal_is_repeated_with_the_same_message() {
    for answer in [
        Answer::Status(503),
        Answer::Status(500),
        Answer::Status(429),
        Answer::Status(408),
        Answer::Broken("reset"),
    ] {
        let network = Network::new([answer.clone(), Answer::Status(202)]);
        hook(&network).oneshot(escalation()).await.unwrap();
        let [first, second] = &network.posts()[..] else { panic!("two for {answer:?}") };
        assert_eq!(first.body, second.body);
        assert_eq!(first.body["id"], "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(second.headers["content-type"], "application/cloudevents+json");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_not_repeated_and_final() {
    for status in [400, 401, 403, 404, 410, 302] {
        let network = Network::new([Answer::Status(status)]);
        let error = hook(&network).oneshot(escalation()).await.unwrap_err();
        assert!(matches!(given_up(error), SendError::Refused(it) if it == status), "{status}");
        assert_eq!(network.posts().len(), 1, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_and_one_that_is_too_long_is_not_waited_for() {
    let network = Network::new([Answer::After(429, "7"), Answer::Status(200)]);
    hook(&network).oneshot(escalation()).await.unwrap();
    assert!(gaps(&network.posts())[0] >= 7 * SECOND);

    let network = Network::new([Answer::After(429, "30")]);
    let began = Instant::now();
    let error = hook(&network).oneshot(escalation()).await.unwrap_err();
    assert!(matches!(given_up(error), SendError::Refused(status) if status == 429));
    assert_eq!((network.posts().len(), began.elapsed()), (1, Duration::ZERO));
}

/// An attempt that begins late has less time.
#[tokio::test(start_paused = true)]
async fn slow_answers_do_not_add_up_beyond_the_deadline() {
    for _ in 0..50 {
        let slow = |seconds| Answer::Slow(503, seconds * SECOND);
        let network = Network::new([slow(7), slow(8), slow(6), Answer::Never]);
        let began = Instant::now();
        hook(&network).oneshot(escalation()).await.unwrap_err();
        assert!(began.elapsed() < 28 * SECOND, "{:?}", began.elapsed());
    }
}

/// The desk allows a sink 30 s: it has to have a word of its own by then.
#[tokio::test(start_paused = true)]
async fn whatever_happens_it_ends_before_the_desk_loses_patience() {
    for answer in [Answer::Never, Answer::Broken("reset"), Answer::Status(503), Answer::Status(429)]
    {
        for _ in 0..20 {
            let network = Network::new([answer.clone()]);
            let began = Instant::now();
            let error = hook(&network).oneshot(escalation()).await.unwrap_err();
            assert!(began.elapsed() < 30 * SECOND, "{:?} for {answer:?}", began.elapsed());
            let attempts = network.posts().len();
            assert!((2..=5).contains(&attempts), "{attempts} for {answer:?}");
            let error = given_up(error);
            if matches!(answer, Answer::Never) {
                let class = ErrorClass::Timeout;
                assert!(matches!(error, SendError::NoAnswer { class: it, .. } if it == class));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_breaker_spares_a_receiver_that_is_down_and_finds_out_when_it_is_back() {
    let down = (0..5).map(|_| Answer::Status(503)).chain([Answer::Status(202)]);
    let network = Network::new(down);
    let sink = hook(&network);
    sink.clone().oneshot(escalation()).await.unwrap_err();
    assert_eq!(network.posts().len(), 5);
    let error = sink.clone().oneshot(escalation()).await.unwrap_err();
    assert!(matches!(given_up(error), SendError::NoAnswer { reason: "circuit_open", .. }));
    assert_eq!(network.posts().len(), 5, "nothing was sent");
    tokio::time::sleep(40 * SECOND).await;
    sink.clone().oneshot(escalation()).await.unwrap();
}

/// Storm control bounds what there is to repeat, so no budget runs dry over a bad day.
#[tokio::test(start_paused = true)]
async fn the_hundredth_message_is_repeated_like_the_first() {
    let flaky = (0..200).map(|n| Answer::Status(if n % 2 == 0 { 503 } else { 202 }));
    let network = Network::new(flaky);
    let sink = hook(&network);
    for _ in 0..100 {
        sink.clone().oneshot(escalation()).await.unwrap();
    }
    assert_eq!(network.posts().len(), 200);
}

/// One client, two hosts: one that is down does not silence the other.
#[tokio::test(start_paused = true)]
async fn each_host_has_a_breaker_of_its_own() {
    let network = Network::new((0..5).map(|_| Answer::Status(503)).chain([Answer::Status(200)]));
    let client = Client::new(network.clone());
    let one = WebhookSink::with_client(client.clone(), "http://one.example/").unwrap();
    let two = WebhookSink::with_client(client, "http://two.example/").unwrap();
    one.clone().oneshot(escalation()).await.unwrap_err();
    two.oneshot(escalation()).await.unwrap();
    one.oneshot(escalation()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn tries_do_not_multiply_and_the_next_sink_is_told() {
    let (down, spare) = (Network::new([Answer::Status(503)]), Network::new([Answer::Status(202)]));
    let receiver = Receiver::new("human").notify(hook(&down)).notify(hook(&spare));
    let routes = Routes::new(Route::new(["human"], "human_required"));
    let desk = Desk::with_policy(DeskPolicy::new().tries(3), routes, [receiver]).unwrap();
    assert_eq!(desk.deliver(escalation(), 60 * SECOND).await.taken, 1);
    assert_eq!((down.posts().len(), spare.posts().len()), (5, 1));
}

/// A stack of one's own: what time can heal is the desk's, what is wrong is final.
#[tokio::test(start_paused = true)]
async fn a_bare_client_makes_one_try() {
    for (status, last_word) in [(503, false), (429, false), (400, true), (404, true)] {
        let network = Network::new([Answer::Status(status)]);
        let sink = WebhookSink::with_client(Client::bare(network.clone()), HOOK).unwrap();
        let error = sink.oneshot(escalation()).await.unwrap_err();
        assert_eq!(error.is::<GivenUp>(), last_word, "{status}");
        assert_eq!(network.posts().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn slack_gets_one_message_a_second_from_all_clones() {
    let network = Network::new([Answer::Status(200)]);
    let slack = Slack::with_client(Client::new(network.clone()), HOOK).unwrap();
    let calls: Vec<_> = (0..5).map(|_| tokio::spawn(slack.clone().oneshot(escalation()))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let posts = network.posts();
    assert_eq!(posts.len(), 5);
    assert!(gaps(&posts).iter().all(|gap| *gap >= SECOND), "{:?}", gaps(&posts));
}

#[tokio::test(start_paused = true)]
async fn pagerduty_takes_with_202_only_and_is_resolved_by_the_same_key() {
    let network = Network::new([Answer::Status(202), Answer::Status(202), Answer::Status(200)]);
    let pager = PagerDuty::with_client(Client::new(network.clone()), "R0UTINGKEY").unwrap();
    pager.clone().oneshot(escalation()).await.unwrap();
    pager.clone().oneshot(resolve()).await.unwrap();
    let error = pager.oneshot(escalation()).await.unwrap_err();
    assert!(matches!(given_up(error), SendError::Refused(status) if status == 200));
    let [trigger, resolve, _]: [Post; 3] = network.posts().try_into().unwrap();
    assert_eq!(trigger.uri, "https://events.pagerduty.com/v2/enqueue");
    assert_eq!(
        (&trigger.body["event_action"], &resolve.body["event_action"]),
        (&"trigger".into(), &"resolve".into())
    );
    assert_eq!(trigger.body["dedup_key"], resolve.body["dedup_key"]);
}

#[tokio::test(start_paused = true)]
async fn alertmanager_gets_an_array_at_its_path() {
    let network = Network::new([Answer::Status(200)]);
    let client = Client::new(network.clone());
    let sink = Alertmanager::with_client(client, "https://am.example/prefix").unwrap();
    sink.oneshot(escalation()).await.unwrap();
    let [post]: [Post; 1] = network.posts().try_into().unwrap();
    assert_eq!(post.uri, "https://am.example/prefix/api/v2/alerts");
    assert_eq!(post.body.as_array().unwrap().len(), 1);
    assert_eq!(post.headers["content-type"], "application/json");
}

/// A client's error quotes the address, as some do.
#[tokio::test(start_paused = true)]
async fn neither_address_nor_key_is_shown() {
    let told = "error for url (https://hooks.example/services/T0/B0/hunter2)";
    for client in [Client::new, Client::bare] {
        let sink = Slack::with_client(client(Network::new([Answer::Broken(told)])), HOOK).unwrap();
        let mut shown = format!("{sink:?}");
        let error = sink.oneshot(escalation()).await.unwrap_err();
        shown += &format!("{error} {error:?}");
        let mut source = std::error::Error::source(&*error);
        while let Some(cause) = source {
            shown += &format!("{cause} {cause:?}");
            source = cause.source();
        }
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("hooks.example") && shown.contains("Transient"), "{shown}");
    }
    let pager = PagerDuty::with_client(Client::new(Network::new([])), "hunter2").unwrap();
    assert!(!format!("{pager:?}").contains("hunter2"));
}

#[test]
fn an_address_that_cannot_work_is_refused_and_not_repeated() {
    for bad in ["", "not a uri?hunter2", "/path/hunter2", "ftp://a.b/hunter2", "http://"] {
        let error = WebhookSink::new(bad).unwrap_err();
        assert_eq!(error.field(), "uri", "{bad}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let secure = Slack::new(HOOK);
    #[cfg(not(feature = "tls"))]
    assert!(secure.unwrap_err().to_string().contains("`tls`"));
    #[cfg(feature = "tls")]
    assert!(!format!("{:?}", secure.unwrap()).contains("hunter2"));
}
