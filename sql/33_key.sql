-- Making keys and encrypting them anew. A key in clear is made inside these functions and leaves them as it is
-- stored: as an argument or a parameter it could end in a log. The master key file is read where it is needed and
-- forgotten at once.

create function webhook._make_secret(
  key_id bigint,      -- id of the new key
  endpoint_id bigint  -- its endpoint
) returns bytea -- a new signing key, as it is stored
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'make_secret_wrapper';
comment on function webhook._make_secret(bigint, bigint) is
  'Makes a signing key and returns it as it is stored: encrypted under the master key, bound to this row; in clear, with a WARNING once per session, when there is none.';

create function webhook._make_key_pair(
  key_id bigint,      -- id of the new key
  endpoint_id bigint, -- its endpoint
  out stored bytea,   -- the private half of a new pair, as it is stored
  out public_key text -- its public half, whpk_ and base64
) returns setof record -- one row
language c volatile strict parallel unsafe rows 1
as 'MODULE_PATHNAME', 'make_key_pair_wrapper';
comment on function webhook._make_key_pair(bigint, bigint) is
  'Makes an ed25519 key pair and returns the private half as it is stored, like _make_secret. It never leaves the database in clear.';

create function webhook._take_secret(
  key_id bigint -- id of the key that _make_secret or _make_key_pair has just made
) returns text -- whsec_ and base64, or whpk_ and the public half; once, null afterwards
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'take_secret_wrapper';
comment on function webhook._take_secret(bigint) is 'Hands out, once, what the receiver needs of the signing key that this session has just made.';

create function webhook._make_seal_key(
  key_id bigint, -- id of the new key
  origin bigint  -- origin that it seals for
) returns bytea -- a new seal key, as it is stored
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'make_seal_key_wrapper';
comment on function webhook._make_seal_key(bigint, bigint) is 'Makes a seal key and returns it as it is stored, like _make_secret.';

create function webhook._reencrypted_secret(
  key_id bigint,      -- id of the key
  endpoint_id bigint, -- its endpoint
  kind text,          -- hmac-sha256 or ed25519
  stored bytea        -- the key as it is stored
) returns bytea -- the same under the current master key; null when it cannot be decrypted
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'reencrypted_secret_wrapper';
comment on function webhook._reencrypted_secret(bigint, bigint, text, bytea) is 'A signing key as it would be stored today.';

create function webhook._reencrypted_seal_key(
  key_id bigint, -- id of the key
  origin bigint, -- origin that it seals for
  stored bytea   -- the key as it is stored
) returns bytea -- the same under the current master key; null when it cannot be decrypted
language c volatile strict parallel unsafe
as 'MODULE_PATHNAME', 'reencrypted_seal_key_wrapper';
comment on function webhook._reencrypted_seal_key(bigint, bigint, bytea) is 'A seal key as it would be stored today.';

create function webhook._master_key_id()
returns text -- id of the master key that encrypts, 16 hexadecimal digits
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'master_key_id_wrapper';
comment on function webhook._master_key_id() is 'Id of the current master key: the beginning of a hash of it. An error when there is none or its file cannot be used.';

create function webhook._forget_seal_key()
returns void
language c volatile parallel unsafe
as 'MODULE_PATHNAME', 'forget_seal_key_wrapper';
comment on function webhook._forget_seal_key() is 'Has every session read the seal key again after this transaction has committed.';

-- What the views tell of a key, so that nobody needs the right to its material to read them. Not by a function in SQL:
-- auto_explain would log the key as its argument. In a CASE: the planner may compute what stands beside an AND in any
-- order, and an empty value has no first byte.
alter table webhook._secret
  add column kept boolean not null generated always as (secret is not null) stored,
  add column stored_under text collate "C" generated always as (
    case
      when pg_catalog.length(secret) > 8 and pg_catalog.get_byte(secret, 0) = 1
        then pg_catalog.encode(pg_catalog.substring(secret, 2, 8), 'hex')
    end) stored;
comment on column webhook._secret.kept is 'Whether its material is still there.';
comment on column webhook._secret.stored_under is 'Id of the master key that it is encrypted under; null = it is in clear, or destroyed.';
alter table webhook._seal_key
  add column stored_under text collate "C" generated always as (
    case
      when pg_catalog.length(key) > 8 and pg_catalog.get_byte(key, 0) = 1
        then pg_catalog.encode(pg_catalog.substring(key, 2, 8), 'hex')
    end) stored;
comment on column webhook._seal_key.stored_under is 'Id of the master key that it is encrypted under; null = it is in clear.';

create function webhook._keys_in_clear()
returns boolean -- whether keys of this database are stored in clear
language sql stable parallel safe
-- SECURITY DEFINER: called by status(), whose callers have no right to the keys.
security definer
set search_path = pg_catalog, webhook, pg_temp
as $$
  select exists (
           select from webhook._seal_key k
            where k.origin = webhook._origin()
              and k.stored_under is null)
      or exists (
           select from webhook._secret s
            where s.kept
              and s.stored_under is null)
      or exists (
           select from webhook._inbox_key i
            where i.kept
              and i.stored_under is null)
$$;
comment on function webhook._keys_in_clear() is 'Whether there is something to encrypt.';

create function webhook._add_secret(
  endpoint_id bigint, -- the endpoint
  out key_id bigint,  -- id of its new key
  out secret text     -- the key, or the public half of the pair, to be handed to the caller
) returns record
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  kind text;
begin
  key_id := webhook._new_id();
  select webhook._key_kind(e.signature)
    into kind
    from webhook._endpoint e
   where e.endpoint_id = _add_secret.endpoint_id;
  -- What is stored is in clear where there is no master key: it goes into the table without becoming a variable, which
  -- would be a parameter of the statement, and could be logged.
  if kind = 'ed25519' then
    insert into webhook._secret (key_id, endpoint_id, kind, secret, public_key)
    select _add_secret.key_id, _add_secret.endpoint_id, 'ed25519', p.stored, p.public_key
      from webhook._make_key_pair(_add_secret.key_id, _add_secret.endpoint_id) as p;
  else
    insert into webhook._secret (key_id, endpoint_id, secret)
    values (key_id, endpoint_id, webhook._make_secret(key_id, endpoint_id));
  end if;
  secret := webhook._take_secret(key_id);
end
$$;
comment on function webhook._add_secret(bigint) is 'Gives an endpoint a new signing key of the kind that its signature profile needs.';

create function webhook._add_seal_key(
  origin bigint -- origin that it seals for
) returns bigint -- id of the new key
language plpgsql volatile parallel unsafe
set search_path = pg_catalog, webhook, pg_temp
as $$
declare
  key_id constant bigint := webhook._new_id();
begin
  insert into webhook._seal_key (key_id, origin, key)
  values (key_id, origin, webhook._make_seal_key(key_id, origin));
  return key_id;
end
$$;
comment on function webhook._add_seal_key(bigint) is 'Makes the seal key that an origin uses from now on.';

-- The first seal key, so that the first emit finds one. In a restored copy it is the only key of the new
-- origin; the old ones come back beside it, and ids are random, so nothing collides.
select webhook._add_seal_key(webhook._origin());
