-- The receiving side as people read it. No payload, no key.

create view webhook.inbox_sources as
select s.name,
       s.profile,
       s.partner_id,
       s.partner_from,
       s.partners,
       s.id_from,
       s.type_from,
       webhook._is_signed(s.profile, s.id_from) as id_signed,
       webhook._is_signed(s.profile, coalesce(s.type_from, case when s.profile in ('github', 'github-sha1', 'shopify') then 'header:' end)) as type_signed,
       s.tolerance,
       s.validation,
       s.same_body,
       s.max_body,
       s.max_pending,
       s.max_per_minute,
       s.enabled,
       (select count(*)
          from webhook._inbox_key k
         where k.source_id = s.source_id
           and k.kept
           and (k.valid_until is null or k.valid_until > clock_timestamp())) as keys,
       s.description,
       s.created_at,
       s.changed_at
  from webhook._inbox_source s;
comment on view webhook.inbox_sources is 'Senders whose events receive() accepts.';
comment on column webhook.inbox_sources.name is 'Name, as receive is given it.';
comment on column webhook.inbox_sources.profile is 'Signature profile of the sender.';
comment on column webhook.inbox_sources.partner_id is 'Tenant of all its events; null = partner_from says.';
comment on column webhook.inbox_sources.partner_from is 'Where the tenant stands.';
comment on column webhook.inbox_sources.partners is 'Tenants that may be named; null = all.';
comment on column webhook.inbox_sources.id_from is 'Where the event id stands; null = as the profile has it.';
comment on column webhook.inbox_sources.type_from is 'Where the event type stands; null = as the profile has it.';
comment on column webhook.inbox_sources.id_signed is 'Whether a signature vouches for event ids; false = a body that was sent before counts as another event under another id.';
comment on column webhook.inbox_sources.type_signed is 'Whether a signature vouches for event types; false = a body may come under another type.';
comment on column webhook.inbox_sources.tolerance is 'How far the time of signing may be from the clock.';
comment on column webhook.inbox_sources.validation is 'off or enforce.';
comment on column webhook.inbox_sources.same_body is 'Whether an event that comes again with another body is a conflict.';
comment on column webhook.inbox_sources.max_body is 'Largest body, bytes.';
comment on column webhook.inbox_sources.max_pending is 'Unfinished events, each counted once for each handler, above which new ones get a 503.';
comment on column webhook.inbox_sources.max_per_minute is 'Events accepted in a minute above which new ones get a 429; null = no limit.';
comment on column webhook.inbox_sources.enabled is 'false = everything gets a 503.';
comment on column webhook.inbox_sources.keys is 'Keys in force.';
comment on column webhook.inbox_sources.description is 'What it is.';
comment on column webhook.inbox_sources.created_at is 'When it was created.';
comment on column webhook.inbox_sources.changed_at is 'When it was last changed.';

create view webhook.inbox_keys as
select k.key_id,
       s.name as source,
       k.kind,
       k.kept and (k.valid_until is null or k.valid_until > clock_timestamp()) as in_force,
       k.created_at,
       k.created_by,
       k.valid_until,
       case when k.kept then k.stored_under is not null end as encrypted,
       k.stored_under as master_key_id
  from webhook._inbox_key k
  join webhook._inbox_source s on s.source_id = k.source_id;
comment on view webhook.inbox_keys is 'Keys of inbox sources, former ones included; no key material.';
comment on column webhook.inbox_keys.key_id is 'Id of the key.';
comment on column webhook.inbox_keys.source is 'Its inbox source.';
comment on column webhook.inbox_keys.kind is 'hmac-sha256, ed25519 or text.';
comment on column webhook.inbox_keys.in_force is 'Whether its signatures are accepted now.';
comment on column webhook.inbox_keys.created_at is 'When it was added.';
comment on column webhook.inbox_keys.created_by is 'Session user who added it.';
comment on column webhook.inbox_keys.valid_until is 'When it ceases, or ceased, to count; null = it has no end.';
comment on column webhook.inbox_keys.encrypted is 'Whether it is stored encrypted; null when its material is destroyed.';
comment on column webhook.inbox_keys.master_key_id is 'Id of the master key that it is stored under.';

create view webhook.inbox_handlers as
select h.name,
       h.version,
       h.event_types,
       h.sources,
       h.retry_schedule,
       h.subject_versions,
       h.paused_at,
       h.paused_by,
       h.pause_reason,
       h.origin <> (select webhook._origin()) as rests,
       h.description,
       h.created_at,
       h.changed_at
  from webhook._inbox_handler h;
comment on view webhook.inbox_handlers is 'What processes received events.';
comment on column webhook.inbox_handlers.name is 'Name, as claim_inbox is given it.';
comment on column webhook.inbox_handlers.version is 'Version in force.';
comment on column webhook.inbox_handlers.event_types is 'Event types and wildcards that it wants.';
comment on column webhook.inbox_handlers.sources is 'Inbox sources that it wants events of; null = all.';
comment on column webhook.inbox_handlers.retry_schedule is 'Waits between its attempts.';
comment on column webhook.inbox_handlers.subject_versions is 'Whether an event about an older version of its subject is stale.';
comment on column webhook.inbox_handlers.paused_at is 'Since when it gets nothing; null = it is not paused.';
comment on column webhook.inbox_handlers.paused_by is 'Session user who paused it.';
comment on column webhook.inbox_handlers.pause_reason is 'Why.';
comment on column webhook.inbox_handlers.rests is 'Whether it came with a copy of another database and gets nothing here until resume_inbox.';
comment on column webhook.inbox_handlers.description is 'What it does.';
comment on column webhook.inbox_handlers.created_at is 'When it was created.';
comment on column webhook.inbox_handlers.changed_at is 'When it was last changed.';

create view webhook.inbox as
select i.event_id,
       s.name as source,
       i.partner_id,
       i.type,
       i.subject_type,
       i.subject_id,
       i.subject_version,
       i.schema_version,
       i.correlation_id,
       i.received_at,
       i.signed_at,
       i.expunged_at,
       i.bytes,
       r.handler,
       r.version as handler_version,
       case
         when r.inbox_id is null then 'unhandled'
         -- A lease that has ended binds nobody.
         when r.state = 'claimed' and r.next_attempt_at <= clock_timestamp() then 'retrying'
         else r.state
       end as state,
       r.attempts,
       case when r.state in ('pending', 'claimed', 'retrying') then r.next_attempt_at end as next_attempt_at,
       r.finished_at,
       r.note
  from webhook._inbox i
  join webhook._inbox_source s on s.source_id = i.source_id
  left join webhook._inbox_run r on r.inbox_id = i.inbox_id;
comment on view webhook.inbox is
  'Received events and what each handler made of them: a row for each event, handler and version. Joins events by event_id where sender and receiver share a database.';
comment on column webhook.inbox.event_id is 'The event, as its sender names it.';
comment on column webhook.inbox.source is 'Inbox source that it came from.';
comment on column webhook.inbox.partner_id is 'Tenant that it belongs to.';
comment on column webhook.inbox.type is 'Event type; null = it says none.';
comment on column webhook.inbox.subject_type is 'Kind of the subject.';
comment on column webhook.inbox.subject_id is 'Identity of the subject.';
comment on column webhook.inbox.subject_version is 'Version of the subject.';
comment on column webhook.inbox.schema_version is 'Version of the payload''s schema.';
comment on column webhook.inbox.correlation_id is 'What ties it to others.';
comment on column webhook.inbox.received_at is 'When it was received.';
comment on column webhook.inbox.signed_at is 'When the sender signed it; null = the profile signs no time.';
comment on column webhook.inbox.expunged_at is 'When what it says was erased.';
comment on column webhook.inbox.bytes is 'Size of the body.';
comment on column webhook.inbox.handler is 'Handler that wants it; null = none did when it was received.';
comment on column webhook.inbox.handler_version is 'Version of the handler.';
comment on column webhook.inbox.state is 'unhandled, pending, claimed, retrying, processed, stale, dead or closed.';
comment on column webhook.inbox.attempts is 'How often it was claimed since it was last given to the handler.';
comment on column webhook.inbox.next_attempt_at is 'When it can be claimed (again); of a claimed one, when its lease ends.';
comment on column webhook.inbox.finished_at is 'When it came to its end.';
comment on column webhook.inbox.note is 'What the handler, or whoever decided, said.';

create view webhook.stat_inbox as
select s.name as source,
       h.name as handler,
       c.accepted,
       c.duplicates,
       c.conflicts,
       c.rejected,
       c.processed,
       c.failures,
       c.stale,
       case when h.name is not null then (
         select count(*)
           from webhook._inbox_run r
          where r.handler = h.name
            and r.source_id = s.source_id
            and r.state in ('pending', 'claimed', 'retrying'))
       end as open,
       case when h.name is not null then (
         select count(*)
           from webhook._inbox_run r
          where r.handler = h.name
            and r.source_id = s.source_id
            and r.state = 'dead')
       end as dead,
       c.last_at
  from webhook._inbox_source s
 cross join (select null::text as name union all select n.name from webhook._inbox_handler n) as h
 cross join lateral (
       select coalesce(sum(k.total) filter (where k.result = 'accepted'), 0)::bigint as accepted,
              coalesce(sum(k.total) filter (where k.result = 'duplicate'), 0)::bigint as duplicates,
              coalesce(sum(k.total) filter (where k.result = 'rejected' and k.reason = 'conflict'), 0)::bigint as conflicts,
              coalesce(sum(k.total) filter (where k.result = 'rejected'), 0)::bigint as rejected,
              coalesce(sum(k.total) filter (where k.result = 'processed'), 0)::bigint as processed,
              coalesce(sum(k.total) filter (where k.result = 'failed'), 0)::bigint as failures,
              coalesce(sum(k.total) filter (where k.result = 'stale'), 0)::bigint as stale,
              max(k.last_at) as last_at
         from webhook._inbox_count k
        where k.source_id = s.source_id
          and case
                when h.name is null then k.result in ('accepted', 'duplicate', 'rejected', 'challenge')
                else k.result in ('processed', 'failed', 'stale') and k.reason = h.name
              end) as c;
comment on view webhook.stat_inbox is
  'What was received and processed, in counters since the retention began: a row for each source, with no handler, and one for each source and handler.';
comment on column webhook.stat_inbox.source is 'Inbox source.';
comment on column webhook.stat_inbox.handler is 'Handler; null = the row tells what receive answered.';
comment on column webhook.stat_inbox.accepted is 'Events accepted.';
comment on column webhook.stat_inbox.duplicates is 'Events that came again.';
comment on column webhook.stat_inbox.conflicts is 'Events that came again with another body; part of rejected.';
comment on column webhook.stat_inbox.rejected is 'Requests rejected, whatever the reason; see inbox_rejections.';
comment on column webhook.stat_inbox.processed is 'Events processed.';
comment on column webhook.stat_inbox.failures is 'Attempts that failed.';
comment on column webhook.stat_inbox.stale is 'Events about an older version of their subject.';
comment on column webhook.stat_inbox.open is 'Events not finished.';
comment on column webhook.stat_inbox.dead is 'Dead letters.';
comment on column webhook.stat_inbox.last_at is 'When the last of these was counted.';

create view webhook.inbox_rejections as
select s.name as source,
       c.day,
       c.reason,
       sum(c.total)::bigint as total,
       max(c.last_at) as last_at
  from webhook._inbox_count c
  join webhook._inbox_source s on s.source_id = c.source_id
 where c.result = 'rejected'
 group by s.name, c.day, c.reason;
comment on view webhook.inbox_rejections is 'Requests that were rejected, by day and reason. Of the requests themselves nothing is kept.';
comment on column webhook.inbox_rejections.source is 'Inbox source.';
comment on column webhook.inbox_rejections.day is 'UTC day.';
comment on column webhook.inbox_rejections.reason is 'Why.';
comment on column webhook.inbox_rejections.total is 'How often.';
comment on column webhook.inbox_rejections.last_at is 'When last.';
