//! When the leader sleeps and for how long: never while there is work, never longer than to the next
//! timed step.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::Leader;
use super::memory::Lane;
use crate::rules::ids::EndpointId;
use crate::wire::crew::Crew;

/// Lowest endpoint id, to begin a range with.
const LOWEST: EndpointId = EndpointId(i64::MIN);

/// What wakes the leader. Made once: WaitLatchOrSocket opens, fills and closes an epoll descriptor each time, which was
/// 9 % of the main thread under load.
pub struct Sleep {
    events: *mut pg_sys::WaitEventSet,
}

impl Sleep {
    /// Wakes when something is done by this crew, which lives as long as the process.
    pub fn new(crew: &Crew) -> Sleep {
        let events = [
            (pg_sys::WL_LATCH_SET, pg_sys::PGINVALID_SOCKET),
            (pg_sys::WL_EXIT_ON_PM_DEATH, pg_sys::PGINVALID_SOCKET),
            (pg_sys::WL_SOCKET_READABLE, crew.event_fd().as_raw_fd()),
        ];
        // SAFETY: the main thread; the set and what it points to are there until the process ends.
        unsafe {
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            let owner = pg_sys::TopMemoryContext;
            #[cfg(not(any(feature = "pg15", feature = "pg16")))]
            let owner = std::ptr::null_mut();
            let set = pg_sys::CreateWaitEventSet(owner, 3);
            for (event, socket) in events {
                let latch = if event == pg_sys::WL_LATCH_SET {
                    pg_sys::MyLatch
                } else {
                    std::ptr::null_mut()
                };
                pg_sys::AddWaitEventToSet(set, event, socket, latch, std::ptr::null_mut());
            }
            Sleep { events: set }
        }
    }

    /// Sleeps for so many milliseconds at most; whether the crew has done something. The latch is reset.
    fn until(&self, timeout: i64) -> bool {
        let mut occurred = [pg_sys::WaitEvent::default(); 3];
        // SAFETY: the set was made for this process; there is room for all that may occur.
        let count = unsafe {
            let count = pg_sys::WaitEventSetWait(
                self.events,
                timeout,
                occurred.as_mut_ptr(),
                3,
                pg_sys::PG_WAIT_EXTENSION,
            );
            pg_sys::ResetLatch(pg_sys::MyLatch);
            count
        };
        occurred
            .iter()
            .take(usize::try_from(count).unwrap_or(0))
            .any(|event| event.events & pg_sys::WL_SOCKET_READABLE != 0)
    }
}

impl Leader {
    /// Sleeps until a commit, a finished request, a signal or the next timed step.
    pub fn wait(&self) {
        let pause = self.pause();
        let timeout =
            i64::try_from(pause.as_millis()).unwrap_or(1000) + i64::from(!pause.is_zero());
        if self.sleep.until(timeout) {
            self.crew.clear_event();
        }
        // A cancel request has nothing to cancel here; outside a transaction it would end the process.
        // SAFETY: a flag of this process.
        unsafe { pg_sys::QueryCancelPending = 0 };
        pgrx::check_for_interrupts!();
    }

    /// How long nothing is to be done unless something happens.
    fn pause(&self) -> Duration {
        if let Some(until) = self.rest_until {
            return until.saturating_duration_since(Instant::now());
        }
        if self.must_forget() && self.settings.enabled {
            return Duration::ZERO;
        }
        // Switched off or full, the poll waits: a configuration change or a finished request wakes us.
        let mut pause = if self.settings.enabled && self.memory.has_room(Lane::Fresh) {
            self.settings
                .poll_interval
                .saturating_sub(self.last_look.elapsed())
        } else {
            self.settings.poll_interval
        };
        if let Some(since) = self.unwritten_since {
            pause = pause.min(
                self.settings
                    .result_flush_interval
                    .saturating_sub(since.elapsed()),
            );
        }
        if let Some(wait) = self.notifying.pause() {
            pause = pause.min(wait);
        }
        if let Some(wait) = self.conditions.pause() {
            pause = pause.min(wait);
        }
        if !self.settings.enabled {
            return pause;
        }
        if let Some(wait) = self.house_pause() {
            pause = pause.min(wait);
        }
        if let Some(wait) = self.keeping_pause() {
            pause = pause.min(wait);
        }
        if let Some(wait) = self.replay_pause() {
            pause = pause.min(wait);
        }
        let now = self.clock.now();
        if let Some(wait) = self.proving.pause(now) {
            pause = pause.min(wait);
        }
        // A token, or the time of a probe.
        if let Some(at) = self.scheduler.next_timer() {
            pause = pause.min(Duration::from_micros(u64::try_from(at - now).unwrap_or(0)));
        }
        if self.scheduler.waiting() > 0 || !self.flights.is_empty() {
            pause = pause.min(self.settings.first_pass_limit / 8);
        }
        let room = self.memory.has_room(Lane::Fresh);
        let work = (room && (self.window.cur.is_some() || self.look_soon))
            || self.asides_to_read()
            || !self.to_cancel.is_empty()
            || self.control_left()
            || self.adoption_left()
            || (self.requests_waiting && self.window.cur.is_none() && room)
            || (self.claimable(now).next().is_some() && self.may_claim());
        if work {
            return Duration::ZERO;
        }
        // What is due already and not claimable waits for a finished request, which wakes us.
        if let Some((at, _, _)) = self.due_order.range((now + 1, LOWEST, 0)..).next() {
            pause = pause.min(Duration::from_micros(u64::try_from(at - now).unwrap_or(0)));
        }
        pause
    }
}
