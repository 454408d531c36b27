//! What users store, name, clone and spawn.

mod common;

use common::{Reply, Rules, classifier, reply, reset};
use std::rc::Rc;

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{AnyError, ErrorClass};
use tower_triage_fallback::chain::{End, Then};
use tower_triage_fallback::keep::{KeepRequest, Nothing};
use tower_triage_fallback::steps::{SameRequest, ServiceStep, ValueStep};
use tower_triage_fallback::{ByClone, Fallback, FallbackHandle, FallbackLayer};
use tower_triage_test_support::Scripted;

type Value = Then<End, ValueStep<fn()>>;
type Backup = Then<End, ServiceStep<Scripted<u32, Reply, AnyError>, SameRequest>>;

assert_impl_all!(FallbackLayer<Rules, Value, Nothing<AnyError>>: Clone, Send, Sync, Unpin);
assert_impl_all!(FallbackLayer<Rules, Backup, KeepRequest<ByClone, AnyError>>: Clone, Send, Sync);
assert_impl_all!(Fallback<(), Rules, Value, Nothing<AnyError>>: Clone, Send, Sync, Unpin);
assert_impl_all!(FallbackHandle: Clone, Send, Sync, Unpin);
// A held readiness error is as movable between threads as it is itself, no more.
assert_not_impl_any!(Fallback<(), Rules, Value, Nothing<Rc<()>>>: Send);
// A service is cloned with its inner service, or not at all.
assert_not_impl_any!(Fallback<NotClone, Rules, Value, Nothing<AnyError>>: Clone);

struct NotClone;

/// An un-boxed stack with every kind of step inside a spawned async block.
#[tokio::test]
async fn is_spawned_unboxed() {
    let backup = service_fn(|_: u32| async { Err::<Reply, _>(reset("backup down")) });
    let stack = ServiceBuilder::new()
        .layer(
            FallbackLayer::new(classifier())
                .max_steps::<5>()
                .or_service(ErrorClass::Transient, backup)
                .or_service_with(ErrorClass::Transient, backup, |request: u32, _failed| request)
                .or_replan(ErrorClass::Transient, |request: u32, _failed| request + 1)
                .or_call(ErrorClass::Transient, |_failed| async { Err(reset("call down")) })
                .or_value(ErrorClass::Transient, |_failed| reply(200, "value")),
        )
        .service(service_fn(|_: u32| async { Err::<Reply, _>(reset("primary down")) }));
    let boxed: BoxCloneSyncService<u32, Reply, AnyError> = BoxCloneSyncService::new(stack.clone());
    let task = tokio::spawn(async move {
        let mut stack = stack;
        stack.ready().await?.call(1).await
    });
    assert_eq!(task.await.unwrap().unwrap().body, "value");
    assert_eq!(boxed.oneshot(1).await.unwrap().body, "value");
}

/// The inner future, the kept request, and 512 bytes at most.
#[test]
fn a_future_is_not_much_larger_than_the_inner_one() {
    type Request = [u8; 200];
    let inner = service_fn(|request: Request| async move {
        tokio::task::yield_now().await;
        Ok::<_, AnyError>(request.len())
    });
    let backup =
        service_fn(|request: Request| std::future::ready(Ok::<_, AnyError>(request.len())));
    let classifier = tower_triage_core::Classifier::new(tower_triage_core::Halves {
        response: tower_triage_core::AnyOk,
        error: tower_triage_core::Chain,
    });
    let layer = FallbackLayer::new(classifier).or_service(ErrorClass::Transient, backup);
    let mut service = layer.layer(inner);
    let ours = size_of_val(&service.call([0; 200]));
    let bare = size_of_val(&service.get_mut().call([0; 200]));
    assert!(ours <= bare + size_of::<Request>() + 512, "{ours} over {bare}");
}
