//! The failures that nothing below could solve reach somebody who can act.

mod cloud_event;
mod desk;
mod escalation;
mod finish;
pub mod future;
mod layer;
mod policy;
mod report;
mod routes;
mod service;
mod sink;
mod storm;
mod timestamp;
mod write;

#[cfg(feature = "webhook")]
pub use self::sink::{HttpClient, WebhookError, WebhookSink};
pub use self::{
    cloud_event::CloudEvent,
    desk::{Delivered, Delivery, Desk, DeskCounts, DeskPolicy, Overflow, Receiver},
    escalation::{Attempt, Context, Escalation, Outcome},
    finish::{Failed, Finish, FinishWith, KeepFailure},
    layer::EscalateLayer,
    policy::EscalatePolicy,
    routes::{Priorities, Priority, Route, Routes, Rule, When},
    service::Escalate,
    sink::{ChannelClosed, ChannelSink, IntoSink, JsonLinesError, JsonLinesSink, LogSink, Sink},
    timestamp::Timestamp,
};
