\set ECHO none
-- HMAC-SHA256 (RFC 2104) by PostgreSQL's own sha256, and requests signed with it: the tests sign without the product.
create function pg_temp.hmac(key bytea, message bytea) returns bytea
language plpgsql as $$
declare
  inner_pad bytea := decode(repeat('36', 64), 'hex');
  outer_pad bytea := decode(repeat('5c', 64), 'hex');
begin
  if length(key) > 64 then
    key := sha256(key);
  end if;
  for i in 0 .. length(key) - 1 loop
    inner_pad := set_byte(inner_pad, i, get_byte(inner_pad, i) # get_byte(key, i));
    outer_pad := set_byte(outer_pad, i, get_byte(outer_pad, i) # get_byte(key, i));
  end loop;
  return sha256(outer_pad || sha256(inner_pad || message));
end
$$;
create function pg_temp.signed(secret text, id text, body text, age integer default 0) returns jsonb
language sql as $$
  select jsonb_build_object(
           'Webhook-Id', id,
           'Webhook-Timestamp', t.at::text,
           'Webhook-Signature', 'v1,' || encode(pg_temp.hmac(decode(substr(secret, 7), 'base64'), convert_to(id || '.' || t.at || '.' || body, 'UTF8')), 'base64'))
    from (select extract(epoch from clock_timestamp())::bigint - age as at) as t
$$;
\set ECHO all
