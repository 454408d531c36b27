//! One lost `Sync` breaks stacks far away.

use std::rc::Rc;

use static_assertions::{assert_impl_all as all, assert_not_impl_any as none};
use tower_triage_core::{AnyError, Describe, Stamp, StampOutcome};
use tower_triage_http::future::Drain;
use tower_triage_http::{
    BodyPrefix, Deadline, HttpErrors, HttpFacts, HttpReplay, HttpRules, HttpStatus, Repeatable,
    ReplayBodies, ReplayBody, ReplayBodyLayer, ReplayError, RequestHead, RouteTemplate,
    TransportFact, Unavailable, UnitOfWork,
};

all!(HttpRules: Clone, Send, Sync, Unpin);
all!(HttpStatus: Clone, Send, Sync, Unpin);
all!(HttpErrors: Copy, Send, Sync);
all!(HttpFacts<'_>: Copy, Send, Sync);
all!(RequestHead<'_>: Copy, Send, Sync);
all!(TransportFact: Copy, Send, Sync);
all!(HttpReplay: Copy, Send, Sync);
all!(Unavailable: Copy, Send, Sync);
// Extensions must be.
all!(Repeatable: Clone, Send, Sync);
all!(UnitOfWork: Clone, Send, Sync);
all!(Deadline: Clone, Send, Sync);
all!(RouteTemplate: Clone, Send, Sync);
all!(BodyPrefix: Clone, Send, Sync);
// The body decides; a body that cannot be sent makes a drain that cannot.
all!(Drain<http_body_util::Full<bytes::Bytes>>: Send, Sync);
none!(Drain<Rc<()>>: Send);
// Its timer is pinned.
none!(Drain<()>: Unpin);

// The body inside need not be `Sync` (axum's, tonic's), but it has to be `Send` and `Unpin`.
all!(ReplayBody<axum::body::Body>: Clone, Send, Sync, Unpin);
none!(axum::body::Body: Sync);
none!(ReplayBody<Rc<()>>: Send);
none!(ReplayBody<std::marker::PhantomPinned>: Unpin);
all!(ReplayBodyLayer: Copy, Send, Sync);
all!(ReplayBodies<()>: Copy, Send, Sync);
all!(ReplayError: Send, Sync, Unpin);

// Any body, no bound on it.
all!(HttpRules: Describe<http::Request<Rc<()>>>, StampOutcome<http::Response<Rc<()>>, AnyError>);
all!(HttpStatus: Stamp<http::Response<Rc<()>>>);
