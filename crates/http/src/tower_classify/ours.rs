//! Our classifier for tower-http's layers.

use std::any::Any;
use std::{fmt, io};

use tower_http::classify::{
    ClassifiedResponse, ClassifyResponse, MakeClassifier, NeverClassifyEos,
};
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, ClassSet, Classifier, ClassifyError, ErrorClass, Failure,
    Operation, Verdict,
};

use crate::errors::HttpErrors;
use crate::rules::HttpRules;

/// A classifier of ours for tower-http's `TraceLayer` and whatever else takes a `MakeClassifier`:
/// what it calls a failure is what retry, breaker, fallback and escalation act on.
///
/// ```
/// use tower_http::trace::TraceLayer;
/// use tower_triage_core::{Classifier, ClassSet, ErrorClass};
/// use tower_triage_http::{MakeTriageClassifier, http};
///
/// let classifier = Classifier::new(http());
/// // On a server the client's own mistakes are no failures worth a log line.
/// let classes = ClassSet::ALL.without(ErrorClass::Permanent);
/// let trace = TraceLayer::new(MakeTriageClassifier::new(classifier).only(classes));
/// # let _ = trace;
/// ```
///
/// A stamp, overrides, and what was decided at run time for an operation count as everywhere. Errors
/// are judged by type where [`HttpErrors`] knows the type; tower-http gives others away only as text,
/// so they are `Unknown`. Nothing is counted here: the layers that act do that.
#[derive(Clone, Debug)]
pub struct MakeTriageClassifier {
    classifier: Classifier<HttpRules>,
    classes: ClassSet,
}

impl MakeTriageClassifier {
    /// Every failure by `classifier` is one.
    #[must_use]
    pub const fn new(classifier: Classifier<HttpRules>) -> Self {
        Self { classifier, classes: ClassSet::ALL }
    }

    /// Only failures of these classes are; all others pass as successes.
    #[must_use]
    pub fn only(mut self, classes: impl Into<ClassSet>) -> Self {
        self.classes = classes.into();
        self
    }
}

impl MakeClassifier for MakeTriageClassifier {
    type Classifier = TriageClassifier;
    type FailureClass = TraceFailure;
    type ClassifyEos = NeverClassifyEos<TraceFailure>;

    fn make_classifier<B>(&self, request: &http::Request<B>) -> TriageClassifier {
        use tower_triage_core::Describe as _;
        let operation = self.classifier.rules().operation(request);
        TriageClassifier { by: self.clone(), operation }
    }
}

/// Judges one response; made by [`MakeTriageClassifier`], or without a request, for tower-http's
/// `SharedClassifier`.
#[derive(Clone, Debug)]
pub struct TriageClassifier {
    by: MakeTriageClassifier,
    operation: Operation,
}

impl From<MakeTriageClassifier> for TriageClassifier {
    fn from(by: MakeTriageClassifier) -> Self {
        Self { by, operation: Operation::EMPTY }
    }
}

impl TriageClassifier {
    /// The failure, if the verdict is one of the classes that count.
    fn counted(&self, verdict: Verdict) -> Result<(), TraceFailure> {
        match verdict.failure().filter(|failure| self.by.classes.contains(failure.class)) {
            Some(failure) => Err(TraceFailure(failure)),
            None => Ok(()),
        }
    }

    /// The verdict on `error`, if it is a `T`.
    fn judge<T: 'static>(&self, error: &dyn Any) -> Option<Failure>
    where
        HttpErrors: ClassifyError<T>,
    {
        let error: Result<&http::Response<()>, &T> = Err(error.downcast_ref()?);
        self.by.classifier.judge(&self.operation, error).failure()
    }

    fn judge_any(&self, error: &dyn Any) -> Failure {
        self.judge::<AnyError>(error)
            .or_else(|| self.judge::<BoxError>(error))
            .or_else(|| self.judge::<hyper::Error>(error))
            .or_else(|| self.judge_hyper_util(error))
            .or_else(|| self.judge::<h2::Error>(error))
            .or_else(|| self.judge::<io::Error>(error))
            .or_else(|| self.judge::<CircuitOpen>(error))
            .unwrap_or_else(|| Failure::new(ErrorClass::Unknown).reason("unknown_error"))
    }

    #[cfg(feature = "hyper-util")]
    fn judge_hyper_util(&self, error: &dyn Any) -> Option<Failure> {
        self.judge::<hyper_util::client::legacy::Error>(error)
    }

    #[cfg(not(feature = "hyper-util"))]
    fn judge_hyper_util(&self, _error: &dyn Any) -> Option<Failure> {
        None
    }
}

impl ClassifyResponse for TriageClassifier {
    type FailureClass = TraceFailure;
    type ClassifyEos = NeverClassifyEos<TraceFailure>;

    fn classify_response<B>(
        self,
        response: &http::Response<B>,
    ) -> ClassifiedResponse<TraceFailure, Self::ClassifyEos> {
        let outcome: Result<_, &AnyError> = Ok(response);
        let verdict = self.by.classifier.judge(&self.operation, outcome);
        ClassifiedResponse::Ready(self.counted(verdict))
    }

    /// An error is one, whatever its class: tower-http has no word for one that does not count.
    fn classify_error<E: fmt::Display + 'static>(self, error: &E) -> TraceFailure {
        TraceFailure(self.judge_any(error))
    }
}

/// A failure of ours as tower-http's layers pass it on: `Transient (http_503)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFailure(pub Failure);

impl fmt::Display for TraceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.reason {
            "" => write!(f, "{}", self.0.class),
            reason => write!(f, "{} ({reason})", self.0.class),
        }
    }
}

impl From<TraceFailure> for Failure {
    fn from(failure: TraceFailure) -> Self {
        failure.0
    }
}

impl From<TraceFailure> for ErrorClass {
    fn from(failure: TraceFailure) -> Self {
        failure.0.class
    }
}
