//! The room that acts: one HTTP exchange per attempt, in threads of its own, behind the guarded
//! resolver. It knows nothing of PostgreSQL, keeps no state about deliveries, decides nothing about
//! retries and never logs: what a receiver or the network does comes back as an `Outcome`.
#![forbid(unsafe_code)]

mod agent;
pub mod challenge;
mod classify;
pub mod client;
pub mod crew;
mod dial;
mod exchange;
mod flight;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod interfaces;
mod interim;
pub mod job;
mod lane;
mod lookup;
mod pool;
mod proxy;
mod queue;
mod reply;
mod request;
pub mod resolver;
pub mod send;
mod sender;
mod socket;
mod threads;
mod tls;

#[cfg(test)]
mod tests;
