//! Proofs of control: what the leader reads about them, the evidence it writes, and the one change it makes
//! to an endpoint's row: a proven URL is put in force, or one that nobody proved is dropped. A row that
//! somebody else has locked is left for later; the leader waits for nobody.

use pgrx::prelude::*;

use super::statement::{run, select, statement};
use super::{timestamp, unix_micros};
use crate::rules::ids::EndpointId;

/// What an endpoint has to do with proofs and expiry.
pub struct ProofRow {
    /// Method of verification.
    pub method: String,
    /// New URL that is not proven yet.
    pub pending_url: Option<String>,
    /// Which demand for a proof is the current one.
    pub generation: i64,
    /// Since when a proof is demanded; none = none is.
    pub asked_at: Option<i64>,
    pub expires_at: Option<i64>,
    pub renewed_at: i64,
}

/// A challenge that was sent, and what came of it.
#[derive(Clone)]
pub struct Tried {
    pub id: i64,
    pub endpoint: EndpointId,
    pub generation: i64,
    pub method: &'static str,
    pub host: String,
    pub started_at: i64,
    pub latency_ms: Option<i32>,
    pub status: Option<i16>,
    pub category: Option<&'static str>,
    pub proven: bool,
    pub detail: Option<String>,
}

/// What became of a finding about an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    Done,
    /// The endpoint has changed, and the finding is about what it was.
    Void,
    /// Somebody is just changing the endpoint: to be tried again.
    Locked,
}

// The state in force goes along: a new URL must not undo what the leader found about the endpoint. The user's word is
// that of the row as it was locked: the snapshot may be older, and know nothing of a pause or an end since.
statement!(ACCEPT, [i64, i64, TimestampWithTimeZone, &str],
    "with mine as (
       select e.endpoint_id, e.pending_url, e.generation, e.state, e.state_reason, e.state_changed_at
         from webhook._endpoint as e
        where e.endpoint_id = $1
          and e.proof_generation = $2
          for no key update skip locked),
     known as (
       select m.endpoint_id,
              m.pending_url,
              coalesce(s.state, m.state) as state,
              case when s.state is null then m.state_reason else s.reason end as state_reason,
              case when s.state is null then m.state_changed_at else s.changed_at end as state_changed_at
         from mine as m
         left join webhook._endpoint_state as s
                on s.endpoint_id = m.endpoint_id
               and s.generation = m.generation
        where coalesce(s.state, m.state) not in ('expired', 'deleted'))
     update webhook._endpoint as e
        set url = coalesce(k.pending_url, e.url),
            pending_url = null,
            proof_asked_at = null,
            verified_at = $3,
            verified_by = $4,
            state = case k.state when 'unverified' then 'active' else k.state end,
            state_reason = case k.state when 'unverified' then null else k.state_reason end,
            state_changed_at = case k.state when 'unverified' then pg_catalog.clock_timestamp() else k.state_changed_at end,
            generation = e.generation + case when k.pending_url is not null or k.state = 'unverified' then 1 else 0 end,
            changed_xid = pg_catalog.pg_current_xact_id()
       from known as k
      where e.endpoint_id = k.endpoint_id
     returning e.endpoint_id");

statement!(
    DROP_PENDING,
    [i64, i64],
    "with mine as (
       select e.endpoint_id
         from webhook._endpoint as e
        where e.endpoint_id = $1
          and e.proof_generation = $2
          and e.pending_url is not null
          for no key update skip locked)
     update webhook._endpoint as e
        set pending_url = null,
            proof_asked_at = null,
            proof_generation = e.proof_generation + 1,
            changed_xid = pg_catalog.pg_current_xact_id()
       from mine as m
      where e.endpoint_id = m.endpoint_id
     returning e.endpoint_id"
);

// After a statement that skipped the row: was it locked, or is it another one by now?
statement!(
    LOCKED,
    [i64, i64],
    "select e.endpoint_id
       from webhook._endpoint as e
       join webhook._effective_endpoint as f on f.endpoint_id = e.endpoint_id
      where e.endpoint_id = $1
        and e.proof_generation = $2
        and f.state not in ('expired', 'deleted')"
);

statement!(KEEP, [i64, i64, i64, TimestampWithTimeZone, Option<i32>, Option<i16>, &str, &str, &str, Option<&str>, Option<&str>],
    "insert into webhook._verification (
       verification_id, endpoint_id, proof_generation, started_at, latency_ms, status, method, host, result,
       error_category, detail)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");

statement!(
    TRIES,
    [TimestampWithTimeZone],
    "select v.endpoint_id, v.started_at, v.proof_generation = e.proof_generation
       from webhook._endpoint as e
       join webhook._verification as v on v.endpoint_id = e.endpoint_id
      where e.state <> 'deleted'
        and v.result <> 'overridden'
        and (e.proof_asked_at is not null and v.proof_generation = e.proof_generation or v.started_at > $1)
      order by v.verification_id"
);

statement!(
    WARNED,
    [],
    "select e.endpoint_id
       from webhook._endpoint as e
      where (e.expires_at is not null or e.proof_asked_at is not null)
        and e.state <> 'deleted'
        and exists (select
                      from webhook._alert as a
                     where a.endpoint_id = e.endpoint_id
                       and a.kind = 'endpoint.expiring'
                       and a.at >= greatest(e.renewed_at, e.proof_asked_at))"
);

/// Writes what came of a challenge; a right answer puts the URL in force and the endpoint into service.
pub fn record_try(tried: &Tried) -> Written {
    let mut written = Written::Done;
    if tried.proven {
        written = settle(
            &ACCEPT,
            tried.endpoint,
            tried.generation,
            vec![timestamp(tried.started_at).into(), tried.method.into()],
        );
        if written == Written::Locked {
            return written;
        }
    }
    let result = match (tried.proven, written) {
        (false, _) => "failed",
        (true, Written::Done) => "proven",
        (true, _) => "void",
    };
    run(
        &KEEP,
        &[
            tried.id.into(),
            tried.endpoint.0.into(),
            tried.generation.into(),
            timestamp(tried.started_at).into(),
            tried.latency_ms.into(),
            tried.status.into(),
            tried.method.into(),
            tried.host.as_str().into(),
            result.into(),
            tried.category.into(),
            tried.detail.as_deref().into(),
        ],
        |_| (),
    );
    written
}

/// Drops a new URL that nobody proved.
pub fn drop_pending(endpoint: EndpointId, generation: i64) -> Written {
    settle(&DROP_PENDING, endpoint, generation, Vec::new())
}

fn settle(
    statement: &'static std::thread::LocalKey<super::statement::Statement>,
    endpoint: EndpointId,
    generation: i64,
    more: Vec<pgrx::datum::DatumWithOid<'_>>,
) -> Written {
    let mut arguments = vec![endpoint.0.into(), generation.into()];
    arguments.extend(more);
    if run(statement, &arguments, |rows| rows.len()) > 0 {
        return Written::Done;
    }
    let there = run(&LOCKED, &[endpoint.0.into(), generation.into()], |rows| {
        rows.len()
    });
    if there > 0 {
        Written::Locked
    } else {
        Written::Void
    }
}

/// Challenges sent since `recent` or for the current demand, oldest first: endpoint, time, whether it was for
/// the current demand. Read once per life.
pub fn tries(recent: i64) -> Vec<(EndpointId, i64, bool)> {
    select(&TRIES, &[timestamp(recent).into()], |rows| {
        rows.filter_map(|row| {
            Some((
                EndpointId(row.get::<i64>(1).ok().flatten()?),
                unix_micros(row.get::<TimestampWithTimeZone>(2).ok().flatten()?),
                row.get::<bool>(3).ok().flatten()?,
            ))
        })
        .collect()
    })
}

/// Endpoints whose owner was warned already that their time ends. Read once per life.
pub fn warned_of_expiry() -> Vec<EndpointId> {
    select(&WARNED, &[], |rows| {
        rows.filter_map(|row| row.get::<i64>(1).ok().flatten().map(EndpointId))
            .collect()
    })
}
