//! The steps a chain can be made of, one file each.

mod call;
mod last_good;
mod one_call;
mod service;
mod value;

pub use self::{
    call::{CallStep, CallWithStep},
    last_good::{ByOperation, ByRequest, LastGood, LastGoodByStep, LastGoodStep},
    one_call::OneCall,
    service::{
        MakeRequest, MakeWith, NudgeStep, ReplanStep, SameRequest, ServiceStep, ServiceWithStep,
    },
    value::ValueStep,
};
