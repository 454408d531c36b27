//! Fixed-point numbers: a retry is a thousand million units, so that a tenth is exact and a ratio
//! of 0.6 is neither 1 nor 0.5.

use tower_triage_core::ConfigError;

/// One retry.
pub(super) const ONE: u64 = 1_000_000_000;

/// `value` in units, rounded to the nearest; refused outside `0..=max`.
pub(super) fn units(
    field: &'static str,
    value: f64,
    max: f64,
    problem: &'static str,
) -> Result<u64, ConfigError> {
    if (0.0..=max).contains(&value) {
        Ok((value * ONE as f64).round() as u64)
    } else {
        Err(ConfigError::new(field, value, problem))
    }
}

/// `ceil(share * whole)`, exactly.
pub(super) fn ceil_share(share: u64, whole: u64) -> u64 {
    let product = u128::from(share) * u128::from(whole);
    u64::try_from(product.div_ceil(u128::from(ONE))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_fractions_are_exact() {
        assert_eq!(units("f", 0.1, 1.0, ""), Ok(100_000_000));
        assert_eq!(units("f", 0.07, 1.0, ""), Ok(70_000_000));
        // In floating point 0.07 * 100 is a little more than seven.
        assert_eq!(ceil_share(70_000_000, 100), 7);
        assert_eq!(ceil_share(ONE / 2, 9), 5);
        assert_eq!(ceil_share(ONE, u64::MAX), u64::MAX);
    }

    #[test]
    fn what_is_no_share_is_refused_by_name() {
        for value in [-0.1, 1.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(units("f", value, 1.0, "").map_err(|error| error.field()), Err("f"));
        }
    }
}
