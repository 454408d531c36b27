//! Facts about a request, asked only by the layer that needs them.

use tokio::time::Instant;

use crate::label::{Label, Operation};
use crate::trace::TraceParent;

/// The key of a keyed breaker: a host, an operation, an agent. From a small set, like [`Operation`].
pub type Key = Label<47>;

/// Where a request goes, without its query: `GET example.com/orders/17`. For people; never a label.
pub type Target = Label<127>;

/// Reads facts from a request. One provided method per fact; the defaults are neutral: whoever
/// wraps a service of their own may repeat its requests. A protocol's rules answer with the
/// protocol's facts (a POST is not repeatable unless marked).
///
/// Called once per logical request and layer, before the request is given away: keep it cheap and
/// off the heap.
pub trait Describe<Req> {
    /// What is being done, from a small set. Default: empty.
    fn operation(&self, _request: &Req) -> Operation {
        Operation::EMPTY
    }

    /// May this request be sent again although the peer may have worked on it? Default: yes.
    fn repeatable(&self, _request: &Req) -> bool {
        true
    }

    /// Is this request the complete unit of work (a whole transaction, a keyed request), so that
    /// it may run again after losing a race? Default: yes.
    fn unit_of_work(&self, _request: &Req) -> bool {
        true
    }

    /// The key of the breaker that watches over it. Default: the operation.
    fn key(&self, request: &Req) -> Key {
        self.operation(request)
    }

    /// The moment after which nobody waits for the answer. Default: none.
    fn deadline(&self, _request: &Req) -> Option<Instant> {
        None
    }

    /// The request's own id, if it has one. Default: none.
    fn request_id(&self, _request: &Req) -> Option<Label> {
        None
    }

    /// The caller's trace, if there is one. Default: none.
    fn trace(&self, _request: &Req) -> Option<TraceParent> {
        None
    }

    /// Where it goes, for people. Default: empty.
    fn target(&self, _request: &Req) -> Target {
        Target::EMPTY
    }
}
