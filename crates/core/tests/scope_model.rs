//! Random trees of layers, retries and calls made inside handlers, against a plain model that knows
//! nothing of threads, polls or flags.

mod common;

use common::{Rules, Seen, classifier, reset};
use proptest::prelude::*;
use tower_triage_core::incident::{self, Scope};
use tower_triage_core::{
    AnyError, Classifier, ErrorClass, Failure, Incident, LayerKind, Operation, Resolution, StepKind,
};

/// A stack around a handler.
#[derive(Clone, Debug)]
enum Node {
    /// A layer that only watches.
    Layer(Box<Self>),
    /// A layer that tries so often.
    Retry(u32, Box<Self>),
    /// A handler: makes calls of its own, tolerates how they end, then answers by its list.
    Handler { calls: Vec<Self>, answers: Vec<bool> },
}

fn node() -> impl Strategy<Value = Node> {
    let answers = prop::collection::vec(any::<bool>(), 1..4);
    let leaf = answers.clone().prop_map(|answers| Node::Handler { calls: vec![], answers });
    leaf.prop_recursive(5, 24, 3, move |inner| {
        let handler = (prop::collection::vec(inner.clone(), 0..3), answers.clone())
            .prop_map(|(calls, answers)| Node::Handler { calls, answers });
        prop_oneof![
            inner.clone().prop_map(|child| Node::Layer(Box::new(child))),
            (1_u32..4, inner).prop_map(|(n, child)| Node::Retry(n, Box::new(child))),
            handler,
        ]
    })
}

/// A call between `call` and the end of its `poll`.
enum Prepared<'a> {
    Layer(Scope, Box<Self>),
    Retry(Scope, u32, Box<Self>, &'a Node),
    Handler(&'a [Node], &'a [bool], &'a Node),
}

/// How often each handler was asked, by its address.
type Asked = std::collections::HashMap<*const Node, usize>;

fn call(node: &Node) -> Prepared<'_> {
    match node {
        Node::Layer(child) => {
            let scope = Scope::join();
            Prepared::Layer(scope, Box::new(incident::calling(|| call(child))))
        }
        Node::Retry(times, child) => {
            let scope = Scope::join();
            let first = Box::new(incident::calling(|| call(child)));
            Prepared::Retry(scope, *times, first, child)
        }
        Node::Handler { calls, answers } => Prepared::Handler(calls, answers, node),
    }
}

type Outcome = Result<u32, AnyError>;

fn note(classifier: &Classifier<Rules>, outcome: &Outcome) {
    let op = Operation::EMPTY;
    match outcome {
        Ok(_) => classifier.note_success(&op, LayerKind::Retry),
        Err(_) => {
            let failure = Failure::new(ErrorClass::Transient);
            classifier.note_failure(&op, LayerKind::Retry, failure, outcome.as_ref());
        }
    }
}

fn poll(prepared: Prepared<'_>, classifier: &Classifier<Rules>, asked: &mut Asked) -> Outcome {
    match prepared {
        Prepared::Layer(mut scope, child) => {
            let entered = scope.enter();
            let mut outcome = poll(*child, classifier, asked);
            note(classifier, &outcome);
            let success = outcome.is_ok();
            classifier.finish(entered, success, &mut outcome);
            outcome
        }
        Prepared::Retry(mut scope, times, first, child) => {
            let entered = scope.enter();
            let mut outcome = poll(*first, classifier, asked);
            note(classifier, &outcome);
            for _ in 1..times {
                if outcome.is_ok() || incident::exhausted_below() {
                    break;
                }
                drop(incident::next_attempt());
                let again = incident::calling(|| call(child));
                outcome = poll(again, classifier, asked);
                note(classifier, &outcome);
            }
            if outcome.is_err() {
                incident::mark_exhausted();
            }
            let success = outcome.is_ok();
            classifier.finish(entered, success, &mut outcome);
            outcome
        }
        Prepared::Handler(calls, answers, node) => {
            for inner in calls {
                let _tolerated = poll(call(inner), classifier, asked);
            }
            let count = asked.entry(std::ptr::from_ref(node)).or_default();
            *count += 1;
            if answers[(*count - 1) % answers.len()] { Ok(1) } else { Err(reset()) }
        }
    }
}

// === the model ===

/// What one incident should say.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    attempts: u32,
    own: usize,
    nested: usize,
    recovered: bool,
    failed: bool,
}

/// One call: its outcome and its record so far. Ended incidents of calls inside go to `ended`.
struct Model {
    ended: Vec<Expected>,
    asked: Asked,
    failures: u64,
}

impl Model {
    /// A call from outside: an incident if a layer is around it and something was recorded.
    fn outermost(&mut self, node: &Node) -> (bool, usize) {
        let mut record = Expected::default();
        let watched = !matches!(node, Node::Handler { .. });
        let (ok, _) = self.run(node, &mut record, watched);
        let steps = record.own + record.nested;
        if watched && steps > 0 {
            record.recovered = ok && record.own > 0;
            record.failed = !ok;
            self.ended.push(record);
        }
        (ok, steps)
    }

    /// The outcome, and whether a retry inside gave up on it.
    fn run(&mut self, node: &Node, record: &mut Expected, watched: bool) -> (bool, bool) {
        match node {
            Node::Layer(child) => self.run(child, record, true),
            Node::Retry(times, child) => {
                let (mut ok, mut gave_up) = self.run(child, record, true);
                for _ in 1..*times {
                    if ok || gave_up {
                        break;
                    }
                    (ok, gave_up) = self.run(child, record, true);
                }
                (ok, !ok)
            }
            Node::Handler { calls, answers } => {
                for inner in calls {
                    let (_, steps) = self.outermost(inner);
                    record.nested += steps;
                }
                let count = self.asked.entry(std::ptr::from_ref(node)).or_default();
                *count += 1;
                let ok = answers[(*count - 1) % answers.len()];
                if watched && (!ok || record.attempts > 0) {
                    record.attempts += 1;
                    record.own += 1;
                    self.failures += u64::from(!ok);
                }
                (ok, false)
            }
        }
    }
}

fn as_expected(incident: &Incident) -> Expected {
    let nested = incident.steps.iter().filter(|step| step.nested).count();
    Expected {
        attempts: incident.attempts,
        own: incident.steps.len() - nested,
        nested,
        recovered: incident.resolution == Resolution::RecoveredByRetry,
        failed: incident.resolution == Resolution::Failed,
    }
}

fn check(tree: &Node, seen: &Seen, classifier: &Classifier<Rules>) -> Result<(), TestCaseError> {
    let mut model = Model { ended: Vec::new(), asked: Asked::new(), failures: 0 };
    model.outermost(tree);
    // A record keeps a bounded number of steps; the model does not.
    prop_assume!(model.ended.iter().all(|e| e.own + e.nested <= Incident::MAX_STEPS));

    let _ = poll(call(tree), classifier, &mut Asked::new());
    let actual: Vec<_> = seen.incidents().iter().map(as_expected).collect();
    prop_assert_eq!(actual, model.ended);
    prop_assert_eq!(classifier.count(ErrorClass::Transient), model.failures);
    // Nothing is left open on this thread.
    prop_assert!(incident::snapshot().is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_trees_of_calls_give_the_incidents_of_the_model(tree in node()) {
        let (classifier, seen) = classifier();
        check(&tree, &seen, &classifier)?;
    }
}

/// The same on two threads at once: scopes belong to calls, not to each other.
#[test]
fn two_threads_run_random_trees_at_once() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let run = || {
        let mut runner = TestRunner::deterministic();
        for _ in 0..500 {
            let tree = node().new_tree(&mut runner).unwrap().current();
            let (classifier, seen) = classifier();
            if let Err(TestCaseError::Fail(why)) = check(&tree, &seen, &classifier) {
                panic!("{why}: {tree:?}");
            }
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(run);
        threads.spawn(run);
    });
}

#[test]
fn the_model_sees_a_step_for_each_attempt() {
    let (classifier, seen) = classifier();
    let handler = Node::Handler { calls: vec![], answers: vec![false, false, true] };
    let tree = Node::Layer(Box::new(Node::Retry(3, Box::new(handler))));
    poll(call(&tree), &classifier, &mut Asked::new()).unwrap();
    let steps = &seen.incidents()[0].steps;
    assert!(matches!(steps[0].kind, StepKind::Failed { attempt: 1, .. }));
    assert!(matches!(steps[2].kind, StepKind::Succeeded { attempt: 3 }));
}
