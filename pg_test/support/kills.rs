//! Ways to end a part of the server in the middle of its work, and what is remembered of each for the reckoning.

use std::{
    sync::mpsc,
    thread::{self, sleep},
    time::{Duration, Instant, SystemTime},
};

use nix::sys::signal::Signal;
use postgres::NoTls;

use crate::{dice::Dice, outbox::PATIENCE, scene::Scene, wait::wait_for};

/// Events of a transaction that is to be ended before it has emitted all of them.
const ENDLESS: u32 = 1_000_000;

/// One end of the leader: in order (SIGTERM), or hard: by its own SIGKILL or by that of another process, each of
/// which makes the server restart all of its processes, or with the whole server.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// Without time to write anything.
    pub hard: bool,
    /// The leader had taken up what earlier lives left.
    pub running: bool,
    /// When.
    pub at: Instant,
    /// By when it was seen to be gone: a busy machine takes its time.
    pub gone: Instant,
    /// The same by the wall clock.
    pub wall: SystemTime,
}

impl Kill {
    fn now(hard: bool, running: bool) -> Kill {
        let now = Instant::now();
        Kill {
            hard,
            running,
            at: now,
            gone: now,
            wall: SystemTime::now(),
        }
    }

    /// The same, seen to be done by now.
    fn done(self) -> Kill {
        Kill {
            gone: Instant::now(),
            ..self
        }
    }
}

impl Scene {
    /// Ends the leader at a random moment of its life, and waits until it is gone.
    pub fn end_leader(&self, hard: bool, dice: &mut Dice) -> Kill {
        let pid = self.pass_time(dice);
        let mut session = self.session();
        let running = session.is("(select state = 'running' from webhook.stat_worker)");
        let kill = Kill::now(hard, running);
        if hard {
            self.cluster.signal(pid, Signal::SIGKILL);
        } else {
            session.run(&format!("select pg_terminate_backend({pid})"));
        }
        wait_for("the leader is gone", PATIENCE, || {
            !self.cluster.has_process(pid)
        });
        kill.done()
    }

    /// Ends a session in the middle of a statement that emits, with events of this mark. When it is not hard, the
    /// leader notices nothing, and there is nothing to remember.
    ///
    /// # Panics
    /// When the session survives.
    pub fn end_backend(&self, hard: bool, mark: &str, dice: &mut Dice) -> Option<Kill> {
        let leader = self.pass_time(dice);
        let running = self
            .session()
            .is("(select state = 'running' from webhook.stat_worker)");
        let (tell, told) = mpsc::channel();
        let connection = self.cluster.connection("shop");
        let statement = format!(
            "begin;
             select count(webhook.emit('order.created', 'alpha', '{{}}', correlation_id => '{mark}'))
               from generate_series(1, {ENDLESS})"
        );
        let victim = thread::spawn(move || {
            let mut sql = connection.connect(NoTls).expect("a session");
            let pid: i32 = sql
                .query_one("select pg_backend_pid()", &[])
                .expect("its process id")
                .get(0);
            tell.send(pid).expect("somebody listens");
            sql.batch_execute(&statement)
        });
        let pid = told.recv().expect("a session to end");
        sleep(Duration::from_millis(20 + dice.below(200)));
        let kill = Kill::now(true, running);
        if hard {
            self.cluster.signal(pid, Signal::SIGKILL);
        } else {
            self.session()
                .run(&format!("select pg_terminate_backend({pid})"));
        }
        wait_for("the session is gone", PATIENCE, || {
            let there = |pid| self.cluster.has_process(pid);
            !there(pid) && (!hard || !there(leader))
        });
        let kill = kill.done();
        let end = victim.join().expect("the thread of the session");
        assert!(end.is_err(), "the session was not ended in its statement");
        hard.then_some(kill)
    }

    /// Kills every process of the server at once, as a power cut would, and starts it again.
    pub fn crash(&mut self, dice: &mut Dice) -> Kill {
        self.pass_time(dice);
        let running = self
            .session()
            .is("(select state = 'running' from webhook.stat_worker)");
        let kill = Kill::now(true, running);
        self.cluster.crash();
        let kill = kill.done();
        self.cluster.start();
        kill
    }

    /// Waits for a leader and then for a while, now and then so short that it is met while it takes up what the last
    /// one left. Returns its process id.
    fn pass_time(&self, dice: &mut Dice) -> i32 {
        self.leader();
        let most = if dice.percent(30) { 60 } else { 1_800 };
        sleep(Duration::from_millis(dice.below(most)));
        self.leader()
    }
}
