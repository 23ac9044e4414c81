//! Distributions of times: which bucket a time falls into, and what quantiles the buckets tell.
//!
//! The bounds are part of the metrics' interface: a dashboard that was drawn over them must still mean the same after
//! an upgrade, so they are added to and never moved. Counts are kept by whoever counts.

/// Upper bounds of the time from an emit to the delivery, microseconds. The last bucket has none.
pub const LAG: [u64; 17] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
];

/// Upper bounds of the time of one attempt, microseconds. The last bucket has none.
pub const DURATION: [u64; 14] = [
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 20_000_000, 30_000_000, 60_000_000,
];

/// Index of the bucket of a time: the first whose bound is not below it; the number of bounds = above all of them.
pub fn bucket(bounds: &[u64], micros: u64) -> usize {
    bounds.partition_point(|bound| *bound < micros)
}

/// The time below which this share of the counted ones lies, seconds, as far as the buckets tell: evenly spread within
/// a bucket, and at the last bound above it. None = nothing was counted.
#[allow(clippy::cast_precision_loss)]
pub fn quantile(bounds: &[u64], counts: &[u64], share: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = share.clamp(0.0, 1.0) * total as f64;
    let mut below = 0.0;
    for (index, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            let low = index.checked_sub(1).and_then(|index| bounds.get(index));
            let low = seconds(low.copied().unwrap_or(0));
            let Some(high) = bounds.get(index).copied().map(seconds) else {
                return Some(low);
            };
            return Some(low + (high - low) * ((rank - below) / count).clamp(0.0, 1.0));
        }
        below += count;
    }
    bounds.last().copied().map(seconds)
}

/// Microseconds as seconds.
#[allow(clippy::cast_precision_loss)]
pub fn seconds(micros: u64) -> f64 {
    micros as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use super::{DURATION, LAG, bucket, quantile};

    #[test]
    fn a_time_falls_into_the_first_bucket_that_is_not_below_it() {
        assert_eq!(bucket(&LAG, 0), 0);
        assert_eq!(bucket(&LAG, 10_000), 0);
        assert_eq!(bucket(&LAG, 10_001), 1);
        assert_eq!(bucket(&LAG, 86_400_000_000), LAG.len() - 1);
        assert_eq!(bucket(&LAG, u64::MAX), LAG.len());
        for bounds in [&LAG[..], &DURATION[..]] {
            assert!(bounds.is_sorted(), "{bounds:?}");
        }
    }

    #[test]
    fn quantiles_lie_within_the_bucket_that_holds_them() {
        let mut counts = [0; LAG.len() + 1];
        assert_eq!(quantile(&LAG, &counts, 0.5), None);
        counts[2] = 10;
        counts[6] = 10;
        let close = |share: f64, wanted: f64| {
            let found = quantile(&LAG, &counts, share).unwrap_or(f64::NAN);
            assert!((found - wanted).abs() < 1e-9, "{share}: {found}");
        };
        close(0.25, 0.0375);
        close(0.5, 0.05);
        close(0.75, 0.75);
        close(1.0, 1.0);
    }

    #[test]
    fn a_time_above_all_bounds_is_told_as_the_last_bound() {
        let mut counts = [0; DURATION.len() + 1];
        counts[DURATION.len()] = 3;
        assert_eq!(quantile(&DURATION, &counts, 0.5), Some(60.0));
    }
}
