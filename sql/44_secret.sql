-- Signing keys: changing them with an overlap, ending the overlap, revoking them, and what holds for every key:
-- encrypting anew under another master key, and another seal key.
-- Every change raises changed_xid of the endpoint, by which the leader finds it; what is handed to a thread after that
-- is signed with the new set. Material of a key that has ended is destroyed; its id stays as evidence.

create function webhook._take_keys(
  endpoint_id bigint -- the endpoint
) returns webhook._endpoint -- its row, locked
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
begin
  endpoint := webhook._take_endpoint(endpoint_id);
  if endpoint.origin <> webhook._origin() then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s is inert', endpoint_id),
      detail = 'It was made in another database, of which this one is a copy.';
  end if;
  return endpoint;
end
$$;
comment on function webhook._take_keys(bigint) is 'Locks an endpoint whose keys are to be changed. The lock on the endpoint guards its keys, too.';

create function webhook._signing(
  endpoint_id bigint -- the endpoint
) returns bigint[] -- ids of the keys that sign now, in order; null = none
language sql volatile parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select array_agg(s.key_id order by s.valid_until desc nulls first, s.key_id desc)
    from webhook._secret s
   where s.endpoint_id = _signing.endpoint_id
     and s.secret is not null
     and (s.valid_until is null or s.valid_until > clock_timestamp())
$$;
comment on function webhook._signing(bigint) is 'The keys of an endpoint that sign now.';

create function webhook._save_keys(
  endpoint webhook._endpoint, -- row of _take_keys
  verb text,                  -- function that was called
  before bigint[],            -- ids of the keys that signed
  more jsonb default '{}',    -- what else is to be logged
  reason text default null    -- why, in the user's words
) returns void
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
begin
  -- What has ended will never sign again. Material that is gone can leak neither from here nor from a dump.
  update webhook._secret s
     set secret = null
   where s.endpoint_id = endpoint.endpoint_id
     and s.valid_until <= clock_timestamp()
     and s.secret is not null;
  -- Not by _save_endpoint: nothing of the endpoint itself changes, and the log is to name keys.
  update webhook._endpoint e
     set changed_xid = pg_current_xact_id()
   where e.endpoint_id = endpoint.endpoint_id;
  perform webhook._log(
    verb, 'endpoint', endpoint.endpoint_id::text, endpoint.partner_id,
    jsonb_strip_nulls(jsonb_build_object('key_ids', before)),
    jsonb_strip_nulls(jsonb_build_object('key_ids', webhook._signing(endpoint.endpoint_id)) || more),
    reason);
  perform webhook._wake();
end
$$;
comment on function webhook._save_keys(webhook._endpoint, text, bigint[], jsonb, text) is
  'Destroys keys that have ended, lets the leader see that an endpoint has other keys, and logs which.';

create function webhook.rotate_secret(
  endpoint_id bigint,            -- the endpoint
  overlap interval default null, -- how long the former key signs as well, 0 to 7 days; null = webhook.rotation_overlap
  signature text default null,   -- signature profile from now on, of either kind of key; null = unchanged
  out key_id bigint,             -- id of the new key
  out secret text                -- the new signing secret, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
  ends timestamptz;
begin
  perform webhook._check_writable('rotate a secret');
  perform webhook._check_signature(signature);
  overlap := coalesce(overlap, current_setting('webhook.rotation_overlap')::interval);
  if overlap not between interval '0' and interval '7 days' then
    raise exception using
      errcode = 'invalid_parameter_value',
      message = 'overlap is outside the valid range',
      detail = format('It is %s; the range is 0 to 7 days.', overlap);
  end if;
  endpoint := webhook._take_keys(endpoint_id);
  before := webhook._signing(endpoint_id);
  -- Each signature costs the receiver a comparison and the header a line: five in all.
  if cardinality(before) >= 5 and overlap > interval '0' then
    raise exception using
      errcode = 'program_limit_exceeded',
      message = format('endpoint %s has too many signing keys', endpoint_id),
      detail = format('%s keys sign; the limit is 5 with the new one.', cardinality(before)),
      hint = 'End the overlaps with webhook.confirm_rotation, or rotate with overlap => ''0''.';
  end if;
  if signature is not null then
    -- Before the key is made, whose kind it tells.
    -- Another way to sign asks for a proof, as in _reshape; another key of the same kind does not.
    update webhook._endpoint e
       set signature = rotate_secret.signature,
           proof_generation = e.proof_generation + case when p.demanded then 1 else 0 end,
           proof_asked_at = case when p.demanded then clock_timestamp() else e.proof_asked_at end
      from (select endpoint.signature <> rotate_secret.signature and endpoint.verify <> 'none' as demanded) as p
     where e.endpoint_id = rotate_secret.endpoint_id;
  end if;
  ends := clock_timestamp() + overlap;
  -- An earlier overlap is not made longer by this one.
  update webhook._secret s
     set valid_until = least(s.valid_until, ends)
   where s.endpoint_id = rotate_secret.endpoint_id
     and (s.valid_until is null or s.valid_until > ends);
  select a.key_id, a.secret
    into key_id, secret
    from webhook._add_secret(endpoint_id) as a;
  perform webhook._save_keys(
    endpoint, 'rotate_secret', before,
    case when overlap > interval '0' then jsonb_build_object('valid_until', webhook._rfc3339(ends)) else '{}' end
      || jsonb_strip_nulls(jsonb_build_object('signature', signature)));
end
$$;
comment on function webhook.rotate_secret(bigint, interval, text) is
  'Gives an endpoint a new signing key and returns it, which is never shown again. The former key signs as well until the overlap has passed or confirm_rotation ends it. Where a profile has room for one signature, the former key alone makes it until then.';

create function webhook.confirm_rotation(
  endpoint_id bigint -- the endpoint
) returns void
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
begin
  perform webhook._check_writable('confirm a rotation');
  endpoint := webhook._take_keys(endpoint_id);
  before := webhook._signing(endpoint_id);
  update webhook._secret s
     set valid_until = clock_timestamp()
   where s.endpoint_id = confirm_rotation.endpoint_id
     and s.valid_until > clock_timestamp();
  if not found then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('endpoint %s has no rotation to confirm', endpoint_id),
      detail = 'No former key signs any more.';
  end if;
  perform webhook._save_keys(endpoint, 'confirm_rotation', before);
end
$$;
comment on function webhook.confirm_rotation(bigint) is 'Ends the overlap of a rotation at once: the partner has taken over the new key.';

create function webhook.revoke_secret(
  endpoint_id bigint,          -- the endpoint
  reason text,                 -- why; shown in the audit log
  key_id bigint default null,  -- the key; null = every key of the endpoint
  pause boolean default false, -- true: the endpoint is paused as well
  out new_key_id bigint,       -- id of the key that was made because none was left; null = one was
  out secret text              -- that key, whsec_..., shown this once; of a key pair its public half, whpk_...
) returns record
language plpgsql volatile parallel unsafe
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  endpoint webhook._endpoint;
  before bigint[];
  revoked bigint[];
begin
  perform webhook._check_writable('revoke a secret');
  perform webhook._check_argument('pause', pause is null);
  endpoint := webhook._take_keys(endpoint_id);
  reason := webhook._check_reason(reason);
  before := webhook._signing(endpoint_id);
  if key_id is not null and not exists (
    select from webhook._secret s
     where s.endpoint_id = revoke_secret.endpoint_id
       and s.key_id = revoke_secret.key_id)
  then
    raise exception using
      errcode = 'undefined_object',
      message = format('endpoint %s has no key %s', endpoint_id, key_id),
      hint = 'See webhook.signing_keys.';
  end if;
  if key_id is not null and key_id <> all (coalesce(before, '{}')) then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = format('key %s does not sign any more', key_id),
      hint = 'See webhook.signing_keys for those that do.';
  end if;
  revoked := case when key_id is null then before else array[key_id] end;
  update webhook._secret s
     set valid_until = clock_timestamp(),
         revoked_at = clock_timestamp(),
         secret = null
   where s.endpoint_id = revoke_secret.endpoint_id
     and s.key_id = any (revoked);
  -- A former key in its overlap is no key to go on with.
  if not exists (
    select from webhook._secret s
     where s.endpoint_id = revoke_secret.endpoint_id
       and s.secret is not null
       and s.valid_until is null)
  then
    select a.key_id, a.secret
      into new_key_id, secret
      from webhook._add_secret(endpoint_id) as a;
  end if;
  perform webhook._save_keys(endpoint, 'revoke_secret', before, jsonb_build_object('revoked', coalesce(revoked, '{}')), reason);
  -- What is not active sends nothing as it is.
  if pause and endpoint.state = 'active' then
    perform webhook.pause('endpoint', endpoint_id::text, reason);
  end if;
end
$$;
comment on function webhook.revoke_secret(bigint, text, bigint, boolean) is
  'Ends a signing key at once, without an overlap, and destroys it. When no current key is left, a new one is made and returned. With pause the deliveries wait until resume.';

-- SECURITY INVOKER: these two concern every partner and the whole database; they need rights on the tables, which the
-- owner of the extension and superusers alone have.

create function webhook.reencrypt_secrets(
  out secrets integer,    -- signing keys, and keys of inbox sources, that are stored anew
  out seal_keys integer,  -- seal keys that are stored anew
  out unreadable integer  -- keys that no master key of the file opens; they stay as they are
) returns record
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  master_key_id text;
  lost integer;
begin
  perform webhook._check_writable('encrypt keys');
  master_key_id := webhook._master_key_id();
  with renewed as materialized (
    select s.key_id, webhook._reencrypted_secret(s.key_id, s.endpoint_id, s.kind, s.secret) as secret
      from (select s.key_id, s.endpoint_id, s.kind, s.secret
              from webhook._secret s
             where s.secret is not null
               and s.stored_under is distinct from master_key_id
             order by s.key_id
               for no key update) as s),
  changed as (
    update webhook._secret s
       set secret = r.secret
      from renewed r
     where s.key_id = r.key_id
       and r.secret is not null
    returning 1)
  select (select count(*) from changed), (select count(*) from renewed r where r.secret is null)
    into secrets, unreadable;
  with renewed as materialized (
    select k.key_id, webhook._reencrypted_seal_key(k.key_id, k.origin, k.key) as key
      from (select k.key_id, k.origin, k.key
              from webhook._seal_key k
             where k.stored_under is distinct from master_key_id
             order by k.key_id
               for no key update) as k),
  changed as (
    update webhook._seal_key k
       set key = r.key
      from renewed r
     where k.key_id = r.key_id
       and r.key is not null
    returning 1)
  select (select count(*) from changed), (select count(*) from renewed r where r.key is null)
    into seal_keys, lost;
  unreadable := unreadable + lost;
  with renewed as materialized (
    select i.key_id, webhook._reencrypted_inbox_key(i.key_id, i.source_id, i.key) as key
      from (select i.key_id, i.source_id, i.key
              from webhook._inbox_key i
             where i.kept
               and i.stored_under is distinct from master_key_id
             order by i.key_id
               for no key update) as i),
  changed as (
    update webhook._inbox_key i
       set key = r.key
      from renewed r
     where i.key_id = r.key_id
       and r.key is not null
    returning 1)
  select secrets + (select count(*) from changed), (select count(*) from renewed r where r.key is null)
    into secrets, lost;
  unreadable := unreadable + lost;
  if unreadable > 0 then
    raise warning using
      message = format('%s keys could not be decrypted', unreadable),
      detail = 'They are stored under a master key that is not in the file, and stay as they are.',
      hint = 'Add the old master key to the file as a further line, and call webhook.reencrypt_secrets() again.';
  end if;
  perform webhook._log(
    'reencrypt_secrets', 'all', null,
    after => jsonb_build_object('master_key_id', master_key_id, 'secrets', secrets, 'seal_keys', seal_keys, 'unreadable', unreadable));
end
$$;
comment on function webhook.reencrypt_secrets() is
  'Stores every key that is in clear or under a former master key under the current one, the first line of webhook.master_key_file. For the owner of the extension.';

create function webhook.rotate_seal_key()
returns bigint -- id of the new seal key
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  key_id bigint;
begin
  perform webhook._check_writable('rotate the seal key');
  key_id := webhook._add_seal_key(webhook._origin());
  perform webhook._forget_seal_key();
  perform webhook._log('rotate_seal_key', 'all', null, after => jsonb_build_object('seal_key_id', key_id));
  return key_id;
end
$$;
comment on function webhook.rotate_seal_key() is
  'Makes another key that seals events from the commit on, in every session. The former ones stay: what they sealed is still checked with them. For the owner of the extension.';
