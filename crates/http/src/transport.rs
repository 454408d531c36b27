//! An attempt without a response: hyper, h2 and I/O errors, by type (classification, section 6).

use std::error::Error;

use h2::Reason;
use tower_triage_core::{
    Disposition, ErrorClass, Failure, Phase, Vote, causes, classify_chain, local_failure,
};

/// What one error of hyper, hyper-util or h2 says. The plain form of those types, which mostly
/// cannot be built from outside: [`transport_failure`] translates what it finds into one of these.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum TransportFact {
    /// The connector failed (hyper-util's `is_connect`); `inside` is what the error inside says.
    Connect {
        /// What the error inside the connector's says by itself, if it is known.
        inside: Option<Failure>,
    },
    /// The request was dropped before it was given to a connection (`is_canceled`, or an error that
    /// gives the message back).
    Canceled,
    /// The connection's task did not accept the request (`is_closed`).
    Closed,
    /// The connection ended before the answer was complete (`is_incomplete_message`).
    IncompleteMessage,
    /// HTTP/2 keep-alive or a header timer ran out (`is_timeout`).
    TimedOut,
    /// The peer does not speak HTTP (`is_parse`).
    Parse,
    /// Our side stopped sending the body (`is_body_write_aborted`).
    BodyWriteAborted,
    /// Our side made a mistake, or its body failed (`is_user`).
    User,
    /// An HTTP/2 frame ended the stream or the connection.
    Http2(Http2Fact),
}

/// An HTTP/2 error (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Fact {
    /// What ended.
    pub frame: Http2Frame,
    /// The error code.
    pub reason: Reason,
    /// Did the peer send it? Else h2 found the fault itself.
    pub remote: bool,
}

/// Which frame carried an HTTP/2 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Frame {
    /// RST_STREAM: this stream alone. Also an error that names no frame.
    RstStream,
    /// GOAWAY: the connection.
    GoAway {
        /// Is the stream's id above the last one that the peer may have processed? h2 hides that
        /// id, so for its errors this is `false`: not known.
        above_last_id: bool,
    },
}

impl TransportFact {
    /// What it means.
    pub fn failure(self) -> Failure {
        use ErrorClass as C;
        match self {
            // Whatever is inside, nothing was sent.
            Self::Connect { inside } => match inside {
                Some(inside) if inside.class != C::Unknown => {
                    inside.disposition(Disposition::NotSent)
                }
                _ => unsent().reason("connect"),
            },
            Self::Canceled => unsent().vote(Vote::Ignore).reason("canceled_before_dispatch"),
            Self::Closed => unsent().reason("connection_closed"),
            // Also on a reused connection: guessing that the server closed it before it read the
            // request is risky (RFC 9110, section 9.2.2).
            Self::IncompleteMessage => Failure::new(C::Transient).reason("incomplete_message"),
            Self::TimedOut => Failure::new(C::Transient).reason("keep_alive_timeout"),
            Self::Parse => Failure::new(C::Internal).reason("http_parse"),
            Self::BodyWriteAborted => Failure::new(C::Cancelled).reason("body_write_aborted"),
            // Nothing was learned about the peer.
            Self::User => Failure::new(C::Permanent).vote(Vote::Ignore).reason("client_misuse"),
            Self::Http2(fact) => fact.failure(),
        }
    }
}

impl Http2Fact {
    fn failure(self) -> Failure {
        use ErrorClass as C;
        let maybe = |class| Failure::new(class).disposition(Disposition::MaybeProcessed);
        let vouched = |reason| {
            Failure::new(C::Transient)
                .disposition(Disposition::NotProcessed)
                .vote(Vote::Ignore)
                .reason(reason)
        };
        match (self.frame, self.reason) {
            (Http2Frame::GoAway { above_last_id: true }, _) => vouched("h2_goaway_unprocessed"),
            // h2 raises it only on streams above the last id: a graceful shutdown.
            (Http2Frame::GoAway { .. }, Reason::NO_ERROR) if self.remote => {
                vouched("h2_goaway_no_error")
            }
            (Http2Frame::RstStream, Reason::REFUSED_STREAM) if self.remote => {
                vouched("h2_refused_stream")
            }
            (_, Reason::ENHANCE_YOUR_CALM) => maybe(C::Throttled).reason("h2_enhance_your_calm"),
            (
                _,
                Reason::PROTOCOL_ERROR
                | Reason::FRAME_SIZE_ERROR
                | Reason::COMPRESSION_ERROR
                | Reason::FLOW_CONTROL_ERROR
                | Reason::STREAM_CLOSED
                | Reason::INADEQUATE_SECURITY,
            ) => maybe(C::Internal).reason("h2_protocol"),
            (_, Reason::HTTP_1_1_REQUIRED) => {
                Failure::new(C::Declined).reason("h2_http_1_1_required")
            }
            (Http2Frame::GoAway { .. }, _) => maybe(C::Transient).reason("h2_goaway"),
            (Http2Frame::RstStream, _) => maybe(C::Transient).reason("h2_reset"),
        }
    }
}

const fn unsent() -> Failure {
    Failure::new(ErrorClass::Transient).disposition(Disposition::NotSent)
}

/// Classifies `error` by the types along its chain of sources, outermost first: our own rejections
/// and timers, then hyper-util, hyper and h2, and the kind of an I/O error last. `phase` is what
/// the attempt was doing, as far as the caller knows; a connector's error on the way says more.
pub fn transport_failure(error: &(dyn Error + 'static), phase: Phase) -> Failure {
    for cause in causes(error) {
        if let Some(failure) = local_failure(cause) {
            return in_phase(failure, phase);
        }
        if is_connect(cause) && !phase.before_sending() {
            let inside = cause.source().map(|inside| transport_failure(inside, Phase::Connect));
            return TransportFact::Connect { inside }.failure();
        }
        let fact = match (find_as::<hyper::Error>(cause), find_as::<h2::Error>(cause)) {
            (Some(hyper), _) => hyper_fact(hyper),
            (None, Some(h2)) => match h2.get_io() {
                // h2 does not show it as a source.
                Some(io) => return transport_failure(io, phase),
                None => Some(h2_fact(h2)),
            },
            (None, None) => None,
        };
        if let Some(fact) = fact {
            return in_phase(fact.failure(), phase);
        }
    }
    classify_chain(error, phase)
}

/// The outermost phase wins: what was found while connecting is about a request that was not sent.
fn in_phase(failure: Failure, phase: Phase) -> Failure {
    if phase.before_sending() { failure.disposition(Disposition::NotSent) } else { failure }
}

/// The error itself, or in a box: a `Box<T>` is an error of its own type, whose source is T's.
fn find_as<'a, T: Error + 'static>(cause: &'a (dyn Error + 'static)) -> Option<&'a T> {
    cause.downcast_ref().or_else(|| cause.downcast_ref::<Box<T>>().map(|boxed| &**boxed))
}

#[cfg(feature = "hyper-util")]
fn is_connect(cause: &(dyn Error + 'static)) -> bool {
    find_as::<hyper_util::client::legacy::Error>(cause)
        .is_some_and(hyper_util::client::legacy::Error::is_connect)
}

#[cfg(not(feature = "hyper-util"))]
fn is_connect(_cause: &(dyn Error + 'static)) -> bool {
    false
}

/// What hyper's flags say; `None` if the source decides.
fn hyper_fact(error: &hyper::Error) -> Option<TransportFact> {
    if error.is_canceled() {
        return Some(TransportFact::Canceled);
    }
    if error.is_closed() {
        return Some(TransportFact::Closed);
    }
    if error.is_incomplete_message() {
        return Some(TransportFact::IncompleteMessage);
    }
    if error.is_timeout() {
        return Some(TransportFact::TimedOut);
    }
    if error.is_parse() {
        return Some(TransportFact::Parse);
    }
    // It is a user error too, so it is asked first.
    if error.is_body_write_aborted() {
        return Some(TransportFact::BodyWriteAborted);
    }
    error.is_user().then_some(TransportFact::User)
}

fn h2_fact(error: &h2::Error) -> TransportFact {
    // Without a reason and without I/O it is a wrong use of h2.
    let Some(reason) = error.reason() else { return TransportFact::User };
    let frame = if error.is_go_away() {
        Http2Frame::GoAway { above_last_id: false }
    } else {
        Http2Frame::RstStream
    };
    TransportFact::Http2(Http2Fact { frame, reason, remote: error.is_remote() })
}
