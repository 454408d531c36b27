//! A classifier of tower-http's as a rule of ours.

use std::any::Any;
use std::error::Error;
use std::fmt;

use tokio::time::Instant;
use tower_http::classify::{
    ClassifiedResponse, ClassifyResponse as TheirClassify, MakeClassifier, ServerErrorsFailureClass,
};
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, ClassifyError, ClassifyResponse, Describe, Elapsed,
    ErrorClass, Failure, Halves, Key, Label, Note, Notes, Operation, Stamp, Target, TraceParent,
    Verdict, causes, local_failure, stamped, wall_clock,
};

use crate::decision::HttpFacts;
use crate::rules::HttpStatus;
use crate::status::failure_of;

/// Rules by a classifier of tower-http's: what it calls a failure is one for every layer of ours, with
/// the class that `to_failure` makes of its own. `Into::into` will do, where its failure class is
/// `Into<Failure>`; [`server_errors`] for tower-http's `ServerErrorsAsFailures`.
///
/// ```
/// use tower_http::classify::{ServerErrorsAsFailures, SharedClassifier};
/// use tower_triage_core::{Classifier, Classify, ErrorClass};
/// use tower_triage_http::{by_make_classifier, server_errors};
///
/// let theirs = SharedClassifier::new(ServerErrorsAsFailures::new());
/// let rules = by_make_classifier(theirs, server_errors);
///
/// let response = http::Response::builder().status(429).body(()).unwrap();
/// let outcome: Result<_, &std::convert::Infallible> = Ok(&response);
/// assert!(rules.classify(outcome).is_success(), "tower-http has it so");
/// let classifier = Classifier::new(rules);
/// # let _ = classifier;
/// ```
///
/// Ours are the facts about requests, the server's hints, a stamp (`ClassifyLayer`), and our own
/// rejections among the errors. A verdict that tower-http leaves to the end of the stream counts as
/// a success, since the layers decide at the head.
///
/// A rule sees outcomes and no requests: the classifier is made for an empty one. For one that looks at
/// its request put a [`MakeClassifierLayer`](crate::MakeClassifierLayer) below the layers.
pub fn by_make_classifier<M, F>(
    make: M,
    to_failure: F,
) -> Halves<ByMakeClassifier<M, F>, ByMakeClassifier<M, F>>
where
    M: MakeClassifier + Clone,
    F: Fn(M::FailureClass) -> Failure + Clone,
{
    let half = ByMakeClassifier { make, to_failure, facts: HttpStatus::default() };
    Halves { response: half.clone(), error: half }
}

/// What a failure of tower-http's `ServerErrorsAsFailures` is: by its status; an error, of which only
/// the text is left, is `Unknown`.
pub fn server_errors(class: ServerErrorsFailureClass) -> Failure {
    match class {
        ServerErrorsFailureClass::StatusCode(status) => {
            failure_of(status.as_u16()).unwrap_or(ErrorClass::Unknown.into())
        }
        ServerErrorsFailureClass::Error(_) => Failure::new(ErrorClass::Unknown).reason("error"),
    }
}

/// Both halves of the rules that [`by_make_classifier`] makes.
#[derive(Clone)]
pub struct ByMakeClassifier<M, F> {
    make: M,
    to_failure: F,
    facts: HttpStatus,
}

/// What `to_failure` makes of a response that `classifier` judges, hints added.
pub(super) fn verdict_of<C: TheirClassify, B>(
    classifier: C,
    to_failure: impl Fn(C::FailureClass) -> Failure,
    response: &http::Response<B>,
) -> Verdict {
    match classifier.classify_response(response) {
        ClassifiedResponse::Ready(Ok(())) | ClassifiedResponse::RequiresEos(_) => Verdict::Success,
        ClassifiedResponse::Ready(Err(class)) => {
            let facts = HttpFacts {
                status: response.status().as_u16(),
                headers: response.headers(),
                body_prefix: &[],
                now: wall_clock(),
            };
            facts.with_hints(to_failure(class), None).into()
        }
    }
}

/// What our own layers made, and is theirs to say nothing about.
pub(super) fn own_failure(error: &dyn Any) -> Option<Failure> {
    if let Some(failure) = error.downcast_ref::<AnyError>().and_then(stamped) {
        return Some(failure);
    }
    let any = error.downcast_ref::<AnyError>().map(AnyError::as_error);
    let boxed =
        || error.downcast_ref::<BoxError>().map(|error| -> &(dyn Error + 'static) { &**error });
    let open =
        || error.downcast_ref::<CircuitOpen>().map(|error| -> &(dyn Error + 'static) { error });
    let late = || error.downcast_ref::<Elapsed>().map(|error| -> &(dyn Error + 'static) { error });
    causes(any.or_else(boxed).or_else(open).or_else(late)?).find_map(local_failure)
}

impl<M, F, B> ClassifyResponse<http::Response<B>> for ByMakeClassifier<M, F>
where
    M: MakeClassifier,
    F: Fn(M::FailureClass) -> Failure,
{
    fn response(&self, response: &http::Response<B>) -> Verdict {
        let notes = response.extensions().get::<Notes>();
        if let Some(verdict) = notes.and_then(|notes| notes.verdict) {
            return verdict;
        }
        let classifier = self.make.make_classifier(&http::Request::new(()));
        verdict_of(classifier, &self.to_failure, response)
    }

    fn annotate(&self, response: &mut http::Response<B>, note: &Note) -> bool {
        self.facts.annotate(response, note)
    }

    fn explain(&self, response: &http::Response<B>, out: &mut dyn fmt::Write) {
        self.facts.explain(response, out);
    }
}

impl<M, F, B> Stamp<http::Response<B>> for ByMakeClassifier<M, F> {}

impl<M, F, E> ClassifyError<E> for ByMakeClassifier<M, F>
where
    M: MakeClassifier,
    F: Fn(M::FailureClass) -> Failure,
    E: fmt::Display + 'static,
{
    fn error(&self, error: &E) -> Failure {
        own_failure(error).unwrap_or_else(|| {
            let classifier = self.make.make_classifier(&http::Request::new(()));
            (self.to_failure)(classifier.classify_error(error))
        })
    }

    fn annotate(&self, error: &mut E, note: &Note) -> bool {
        let error: &mut dyn Any = error;
        let Some(error) = error.downcast_mut::<AnyError>() else { return false };
        error.annotate(note);
        true
    }

    fn explain(&self, error: &E, out: &mut dyn fmt::Write) {
        // What cannot be written is not read either.
        let _ = write!(out, "{error:#}");
    }
}

impl<M, F, B> Describe<http::Request<B>> for ByMakeClassifier<M, F> {
    fn operation(&self, request: &http::Request<B>) -> Operation {
        self.facts.operation(request)
    }
    fn repeatable(&self, request: &http::Request<B>) -> bool {
        self.facts.repeatable(request)
    }
    fn unit_of_work(&self, request: &http::Request<B>) -> bool {
        self.facts.unit_of_work(request)
    }
    fn key(&self, request: &http::Request<B>) -> Key {
        self.facts.key(request)
    }
    fn deadline(&self, request: &http::Request<B>) -> Option<Instant> {
        self.facts.deadline(request)
    }
    fn request_id(&self, request: &http::Request<B>) -> Option<Label> {
        self.facts.request_id(request)
    }
    fn trace(&self, request: &http::Request<B>) -> Option<TraceParent> {
        self.facts.trace(request)
    }
    fn target(&self, request: &http::Request<B>) -> Target {
        self.facts.target(request)
    }
}

impl<M, F> fmt::Debug for ByMakeClassifier<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByMakeClassifier({})", std::any::type_name::<M>())
    }
}
