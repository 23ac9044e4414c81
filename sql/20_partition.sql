-- Daily partitions of the append-only tables, made ahead by the leader.
-- CREATE TABLE (LIKE) and ATTACH, never CREATE TABLE ... PARTITION OF: the latter locks the parent
-- against every emit (ACCESS EXCLUSIVE), the former does not.

create function webhook._day_bound(
  parent text, -- name of the partitioned table
  day date     -- UTC day
) returns text -- text of the partition bound at the beginning of that day
language c immutable strict parallel safe
as 'MODULE_PATHNAME', 'day_bound_wrapper';
comment on function webhook._day_bound(text, date) is 'Partition bound of a table at the beginning of a UTC day.';

create function webhook._close(
  relation regclass -- table, view or sequence
) returns void
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  grantee regrole;
begin
  execute format('revoke all on %s from public', relation);
  for grantee in
    select distinct a.grantee::regrole
      from pg_class as c
     cross join lateral aclexplode(c.relacl) as a
     where c.oid = relation
       and a.grantee <> c.relowner
       and a.grantee <> 0
  loop
    execute format('revoke all on %s from %s', relation, grantee);
  end loop;
end
$$;
comment on function webhook._close(regclass) is 'Takes a relation from everybody but its owner: default privileges of the owner may have given it away.';

create function webhook._add_partition(
  parent text, -- name of the partitioned table
  day date     -- UTC day
) returns boolean -- true when a partition was made; false when the day has one, has begun or has rows in DEFAULT
language plpgsql volatile
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  leaf constant text := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
  low constant text := webhook._day_bound(parent, day);
  high constant text := webhook._day_bound(parent, day + 1);
  key_column constant text := case parent when '_feed' then 'pos' else 'event_id' end;
  occupied boolean;
begin
  if to_regclass(format('webhook.%I', leaf)) is not null then
    return false;
  end if;
  -- A row that is on its way into DEFAULT while the day gets a partition would fail in its caller's
  -- transaction, so a day is never touched once it has begun; the margin is for clocks that differ.
  if day <= ((clock_timestamp() + interval '5 minutes') at time zone 'UTC')::date then
    return false;
  end if;
  -- ATTACH would fail: a day that has rows in DEFAULT stays there.
  execute format('select exists (select 1 from webhook.%I where %I >= %L and %I < %L)',
                 parent || '_default', key_column, low, key_column, high)
     into occupied;
  if occupied then
    return false;
  end if;
  execute format('create table webhook.%I (like webhook.%I including defaults including constraints)', leaf, parent);
  case parent
    when '_event' then
      execute format('alter table webhook.%I add primary key (event_id)', leaf);
      execute format('create index %I on webhook.%I (xid, event_id)', leaf || '_xid', leaf);
      execute format('create index %I on webhook.%I (subject_type, subject_id, event_id) where subject_id is not null', leaf || '_subject', leaf);
      execute format('create index %I on webhook.%I (correlation_id, event_id) where correlation_id is not null', leaf || '_correlation', leaf);
    when '_feed' then
      execute format('alter table webhook.%I add primary key (partner_id, pos)', leaf);
      execute format('create index %I on webhook.%I (type, pos)', leaf || '_type', leaf);
    when '_delivery' then
      execute format('alter table webhook.%I set (fillfactor = 80)', leaf);
      execute format('alter table webhook.%I add primary key (event_id, endpoint_id)', leaf);
      execute format('create index %I on webhook.%I (endpoint_id, event_id)', leaf || '_endpoint', leaf);
      execute format('create index %I on webhook.%I (state, event_id) where state <> ''delivered''', leaf || '_open', leaf);
      execute format('create index %I on webhook.%I (endpoint_id, event_id) where state = ''dead''', leaf || '_dead', leaf);
    when '_event_version' then
      execute format('alter table webhook.%I add primary key (event_id, version)', leaf);
    else
      execute format('alter table webhook.%I add primary key (event_id, endpoint_id, attempt_no)', leaf);
  end case;
  -- Default privileges of the owner must not open what the extension keeps closed.
  perform webhook._close(format('webhook.%I', leaf)::regclass);
  execute format('comment on table webhook.%I is %L', leaf, format('Rows of %s of %s (UTC).', parent, day));
  execute format('alter table webhook.%I attach partition webhook.%I for values from (%L) to (%L)', parent, leaf, low, high);
  return true;
end
$$;
comment on function webhook._add_partition(text, date) is 'Makes the partition of one UTC day; called by the leader.';
