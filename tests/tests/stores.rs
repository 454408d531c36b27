//! One suite, run against every store: they are to differ in what they survive, and in nothing else.
//!
//! A test that fails says for which store.

mod stores {
    mod change;
    mod fixture;
    mod known_faults;
    mod lease;
    mod list;
    mod model;
    mod put;
    mod question;
    mod restart;
    mod retention;
    mod shop;
    mod text;
    mod watch;
    mod world;
}
