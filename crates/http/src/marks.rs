//! Marks: extensions by which a caller, a router or a peeking layer tells the rules what they
//! cannot see in a message.

use bytes::Bytes;
use http::Extensions;
use tokio::time::Instant;
use tower_triage_core::Label;

/// Request extension: this request may be sent again although the peer may have worked on it,
/// whatever its method. It is the caller's promise that twice is as good as once.
///
/// ```
/// use tower_triage_http::Repeatable;
///
/// let mut request = http::Request::post("/search").body(()).unwrap();
/// request.extensions_mut().insert(Repeatable);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeatable;

/// Request extension: this request is the complete unit of work, so it may run again after it lost
/// a race (409 Conflict). A request with an `Idempotency-Key` is one without this mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitOfWork;

/// Request extension: the moment after which nobody waits for the answer. No retry is begun that
/// could not end before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Instant);

impl Deadline {
    /// Puts it into `extensions`, unless an earlier one is there.
    pub fn put_into(self, extensions: &mut Extensions) {
        let known = extensions.get::<Self>();
        if known.is_none_or(|known| self.0 < known.0) {
            extensions.insert(self);
        }
    }
}

/// Request extension: the template of the route, such as `/orders/{id}`; it becomes part of the
/// operation's name. It must come from a small set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteTemplate(pub Label);

impl RouteTemplate {
    /// The template, shortened if it is longer than a label.
    #[must_use]
    pub fn new(template: &str) -> Self {
        Self(Label::new(template))
    }
}

/// Response extension: the beginning of the body, for error codes that only the body tells (AWS).
/// Left by a layer that buffers or peeks at bodies; the rules themselves never touch one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPrefix(pub Bytes);
