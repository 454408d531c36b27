//! Any limit, grace, deadline and duration of an attempt: the call ends when and how it should.

mod common;

use std::time::Duration;

use common::{Slow, ask, ms, plan, rules, watched};
use proptest::prelude::*;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_triage_core::{Elapsed, StepKind};
use tower_triage_timeout::{TimeoutLayer, TimeoutPolicy};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_call_ends_with_its_answer_or_at_the_smaller_of_limit_and_time_left(
        limit in 1..200_u64,
        grace in proptest::option::of(0..200_u64),
        left in proptest::option::of(0..400_u64),
        takes in 0..400_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (classifier, seen) = watched(rules());
            let mut policy = TimeoutPolicy::new(ms(limit));
            if let Some(grace) = grace {
                policy = policy.grace(ms(grace));
            }
            let slow = Slow::default();
            let layer = TimeoutLayer::new(classifier, ms(1)).unwrap().policy(plan(policy));
            let begun = Instant::now();
            let mut request = ask(ms(takes));
            request.deadline = left.map(|left| begun + ms(left));
            let outcome = layer.layer(slow.clone()).oneshot(request).await;
            let took = begun.elapsed();

            let hard = left.map_or(policy.hard(), |left| ms(left).min(policy.hard()));
            // Tokio's timers have a granularity of a millisecond.
            let later = |time: Duration| time..=time + ms(1);
            match outcome {
                Ok(_) => {
                    prop_assert_eq!(took, ms(takes));
                    prop_assert!(ms(takes) <= hard + ms(1));
                    prop_assert!(left != Some(0));
                }
                Err(error) => {
                    let elapsed = error.downcast_ref::<Elapsed>().unwrap();
                    prop_assert!(later(hard).contains(&took), "{took:?} for {hard:?}");
                    prop_assert_eq!(elapsed.after(), took);
                    prop_assert!(ms(takes) >= hard);
                    let passed = left.is_some_and(|left| took >= ms(left));
                    prop_assert_eq!(elapsed.is_deadline(), passed);
                    prop_assert_eq!(elapsed.was_sent(), slow.calls() == 1);
                    prop_assert_eq!(elapsed.was_sent(), left != Some(0));
                }
            }
            // The signal comes once, first, and not after the limit.
            let soft: Vec<_> = seen
                .steps()
                .iter()
                .enumerate()
                .filter_map(|(index, (_, step))| match step.kind {
                    StepKind::TimedOut { soft: true, after } => Some((index, after)),
                    _ => None,
                })
                .collect();
            prop_assert!(soft.len() <= 1);
            for (index, after) in soft {
                prop_assert_eq!(index, 0);
                prop_assert!(after <= ms(limit + 1) && after <= took);
                prop_assert!(!policy.grace_time().is_zero());
            }
            Ok(())
        })?;
    }
}
