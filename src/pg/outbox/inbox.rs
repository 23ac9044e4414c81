//! What `receive` reads as the owner: the keys of a source, decrypted here and never an argument of a statement.

use zeroize::Zeroizing;

use super::statement::{select, statement};
use crate::pg::vault::Vault;
use crate::rules::vault::Place;

statement!(
    INBOX_KEYS,
    [i64],
    "select k.key_id, k.key
       from webhook._inbox_key as k
      where k.source_id operator(pg_catalog.=) $1
        and k.key is not null
        and (k.valid_until is null or k.valid_until operator(pg_catalog.>) pg_catalog.clock_timestamp())
      order by k.key_id desc"
);

/// The keys of a source that are in force, newest first; an error for each that cannot be had.
pub fn inbox_keys(source_id: i64) -> Vec<Result<Zeroizing<Vec<u8>>, String>> {
    select(&INBOX_KEYS, &[source_id.into()], |rows| {
        let vault = Vault::read();
        rows.filter_map(|row| {
            let key_id = row.get::<i64>(1).ok().flatten()?;
            let stored = Zeroizing::new(row.get::<Vec<u8>>(2).ok().flatten()?);
            let place = Place::Inbox { key_id, source_id };
            Some(vault.open(place, &stored).map_err(|unopened| unopened.why))
        })
        .collect()
    })
}
