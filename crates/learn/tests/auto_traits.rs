//! Which auto traits users may rely on.

use static_assertions::assert_impl_all;
use tower_triage_core::{Advisor, Observer};
use tower_triage_learn::{
    Advice, ImportError, Imported, Known, LearnPlan, LearnPolicy, Learner, Memory, Mode, OpenError,
    Opened, Remedy, SaveError,
};

assert_impl_all!(Learner: Send, Sync, Clone, Unpin, std::fmt::Debug, Advisor, Observer);
assert_impl_all!(Memory: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(LearnPolicy: Send, Sync, Clone, PartialEq);
assert_impl_all!(LearnPlan: Send, Sync, Clone, PartialEq, Default);
assert_impl_all!(Remedy: Send, Sync, Copy, PartialEq, std::hash::Hash);
assert_impl_all!(Mode: Send, Sync, Copy, PartialEq, Default);
assert_impl_all!(Advice: Send, Sync, Copy, PartialEq);
assert_impl_all!(Known: Send, Sync, Copy, PartialEq);
assert_impl_all!(Opened: Send, Sync, Copy, PartialEq);
assert_impl_all!(Imported: Send, Sync, Copy, PartialEq);
assert_impl_all!(OpenError: Send, Sync, std::error::Error);
assert_impl_all!(SaveError: Send, Sync, Clone, std::error::Error);
assert_impl_all!(ImportError: Send, Sync, Copy, std::error::Error);
