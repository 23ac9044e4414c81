//! What may still leave of an event whose payload was erased.

/// Whether an event type reports a deletion by its last word: `customer.deleted`, `customer.address.erased`. A receiver
/// that is not told goes on keeping what is to be deleted.
pub fn is_deletion(kind: &str) -> bool {
    matches!(kind.rsplit('.').next(), Some("deleted" | "erased"))
}

#[cfg(test)]
mod tests {
    use super::is_deletion;

    #[test]
    fn the_last_word_tells_a_deletion() {
        for kind in ["customer.deleted", "customer.address.erased"] {
            assert!(is_deletion(kind), "{kind}");
        }
        for kind in [
            "customer.updated",
            "deleted.customer",
            "customer.undeleted",
            "customer.deleted.x",
            "",
        ] {
            assert!(!is_deletion(kind), "{kind}");
        }
    }
}
