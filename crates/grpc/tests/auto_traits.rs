//! One lost `Sync` breaks stacks far away.

use std::marker::PhantomPinned;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::Full;
use static_assertions::{assert_impl_all as all, assert_not_impl_any as none};
use tower_triage_core::{AnyError, Describe, Stamp, StampOutcome};
use tower_triage_grpc::{
    A6Policy, AsStatus, AttemptLimit, GrpcErrors, GrpcFacts, GrpcReplay, GrpcRules, GrpcStatus,
    Method, MethodPolicy, Peek, PeekBody, PeekFuture, PeekLayer, Peeked, Pushback, ServiceConfig,
    StatusDetails, Unavailable,
};

all!(GrpcRules: Clone, Send, Sync, Unpin);
all!(GrpcStatus: Clone, Send, Sync, Unpin);
all!(GrpcErrors: Copy, Send, Sync);
all!(GrpcFacts<'_>: Copy, Send, Sync);
all!(Method<'_>: Copy, Send, Sync);
all!(StatusDetails: Copy, Send, Sync);
all!(Pushback: Copy, Send, Sync);
all!(GrpcReplay: Clone, Send, Sync, Unpin);
all!(ServiceConfig: Clone, Send, Sync, Unpin);
all!(MethodPolicy: Clone, Send, Sync, Unpin);
all!(A6Policy: Clone, Send, Sync);
all!(AttemptLimit: Copy, Send, Sync);
all!(Unavailable: Copy, Send, Sync);
all!(AsStatus: Copy, Send, Sync);
// Extensions must be.
all!(Peeked: Clone, Send, Sync);

all!(PeekLayer: Copy, Send, Sync);
all!(Peek<()>: Copy, Send, Sync);
// tonic's body is `Send` and no more; that is enough for its client.
all!(PeekBody<tonic::body::Body>: Send, Unpin, Default);
all!(PeekBody<Full<Bytes>>: Send, Sync, Unpin);
all!(PeekFuture<std::future::Ready<()>, tonic::body::Body>: Send);
none!(PeekFuture<Rc<()>, tonic::body::Body>: Send);
// Its timer is pinned.
none!(PeekFuture<(), ()>: Unpin);
none!(PeekFuture<PhantomPinned, ()>: Unpin);

// Any body, no bound on it.
all!(GrpcRules: Describe<http::Request<Rc<()>>>, StampOutcome<http::Response<Rc<()>>, AnyError>);
all!(GrpcStatus: Stamp<http::Response<Rc<()>>>);
