-- verify and explain_signature: every row of the vectors, forgeries of each profile, and what is misuse.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql
\i :here/support/hmac.sql

-- The vectors. A row that is judged otherwise than it should be is listed; the counts say that there were rows.
create temp table vector (row json);
\set rows `cat "$PG_ABS_SRCDIR"/../docs/vectors/standard_webhooks.jsonl "$PG_ABS_SRCDIR"/../docs/vectors/http_signatures.jsonl "$PG_ABS_SRCDIR"/../docs/vectors/legacy_signatures.jsonl "$PG_ABS_SRCDIR"/vectors/own_formats.jsonl`
insert into vector select line::json from string_to_table(:'rows', E'\n') as line where line like '%"op": "verify"%';
create temp view judged as
select v.row ->> 'id' as id, v.row -> 'expected' ->> 'error' as error, (v.row -> 'expected' ->> 'valid')::boolean as valid, c.*,
       webhook.explain_signature(c.profile, c.keys, c.headers, c.body, c.tolerance, c.method, c.url, c.at) as explained,
       webhook.verify(c.profile, c.keys, c.headers, c.body, c.tolerance, c.method, c.url, c.at) as verified
  from vector as v
 cross join lateral (select v.row -> 'input' as input) as i
 cross join lateral (
   select 'v1' as profile, array(select json_array_elements_text(i.input -> 'keys')) as keys, (i.input ->> 'headers')::jsonb as headers,
          convert_to(i.input ->> 'body', 'UTF8') as body, make_interval(secs => (i.input ->> 'tolerance')::integer) as tolerance,
          'POST' as method, null as url, to_timestamp((i.input ->> 'now')::bigint) as at
    where i.input -> 'keys' is not null
    union all
   select 'rfc9421-ed25519',
          array[coalesce('whpk_' || (i.input -> 'key' ->> 'public_b64'), 'whsec_' || (i.input -> 'key' ->> 'secret_b64'))],
          (select jsonb_object_agg(h.name, h.lines)
             from (select lower(l.line ->> 0) as name, jsonb_agg(l.line ->> 1 order by l.place) as lines
                     from json_array_elements(i.input -> 'message' -> 'headers') with ordinality as l (line, place)
                    group by 1) as h)
            || jsonb_build_object('Signature-Input', i.input ->> 'signature_input', 'Signature', i.input ->> 'signature'),
          convert_to(coalesce(i.input -> 'message' ->> 'body', ''), 'UTF8'), '0', i.input -> 'message' ->> 'method', i.input -> 'message' ->> 'url',
          to_timestamp((regexp_match(i.input ->> 'signature_input', 'created=(\d+)'))[1]::bigint)
    where i.input -> 'message' is not null
    union all
   select i.input ->> 'scheme', array[i.input ->> 'secret'],
          jsonb_strip_nulls(jsonb_build_object(
            case i.input ->> 'scheme' when 'github' then 'X-Hub-Signature-256' when 'stripe' then 'Stripe-Signature'
                                      when 'slack' then 'X-Slack-Signature' else 'X-Shopify-Hmac-Sha256' end, i.input ->> 'header',
            'X-Slack-Request-Timestamp', i.input ->> 'timestamp')),
          coalesce(decode(i.input ->> 'body_b64', 'base64'), convert_to(i.input ->> 'body', 'UTF8')),
          make_interval(secs => coalesce(i.input ->> 'tolerance', '0')::integer), 'POST', null, to_timestamp(coalesce(i.input ->> 'now', '0')::bigint)
    where i.input -> 'scheme' is not null) as c;
select id, valid, verified, error, explained from judged
 where verified is distinct from valid or (explained = 'valid') <> valid or error <> explained;
select profile, count(*), count(*) filter (where valid) from judged group by profile order by profile;

-- What is signed without the product, under each profile that needs no more than HMAC.
select 'whsec_' || encode(sha256('a'), 'base64') as a, 'whsec_' || encode(sha256('b'), 'base64') as b \gset
select webhook.verify('v1', array[:'a'], pg_temp.signed(:'a', 'msg_1', '{"n":1}'), '{"n":1}'),
       webhook.verify('v1', array[:'b', :'a'], pg_temp.signed(:'a', 'msg_1', '{"n":1}'), '{"n":1}') as rotated,
       webhook.verify('v1', array[:'b'], pg_temp.signed(:'a', 'msg_1', '{"n":1}'), '{"n":1}') as stranger,
       webhook.verify('v1', array[:'a'], pg_temp.signed(:'a', 'msg_1', '{"n":1}'), '{"n":2}') as other_body;
select n, webhook.explain_signature('v1', array[:'a'], pg_temp.signed(:'a', 'msg_1', '{}', n), '{}'),
          webhook.explain_signature('v1', array[:'a'], pg_temp.signed(:'a', 'msg_1', '{}', n), '{}', '1 hour')
  from unnest('{290,310,-290,-310,3500,3700}'::integer[]) as n;
-- Report 15: no signature at all, and the first eight bytes of the right one.
select what, webhook.verify('v1', array[:'a'], h.headers || jsonb_build_object('Webhook-Signature', forged.value), '{}'),
       webhook.explain_signature('v1', array[:'a'], h.headers || jsonb_build_object('Webhook-Signature', forged.value), '{}')
  from (select pg_temp.signed(:'a', 'msg_1', '{}') as headers) as h
 cross join lateral (select h.headers ->> 'Webhook-Signature' as value) as right_one
 cross join lateral (values
   ('right', right_one.value),
   ('nothing', ''),
   ('empty', 'v1,'),
   ('eight bytes', 'v1,' || encode(substring(decode(substr(right_one.value, 4), 'base64') for 8), 'base64')),
   ('one byte less', 'v1,' || encode(substring(decode(substr(right_one.value, 4), 'base64') for 31), 'base64')),
   ('one byte more', 'v1,' || encode(decode(substr(right_one.value, 4), 'base64') || '\x00', 'base64')),
   ('cut', left(right_one.value, 20)),
   ('reversed', 'v1,' || reverse(substr(right_one.value, 4))),
   ('among others', 'v1, v9,x ' || right_one.value || ' v1a,AAAA'),
   ('as a public one', 'v1a,' || substr(right_one.value, 4))) as forged (what, value);
-- Names in any case, lines in an array; what counts may not be there twice.
select webhook.verify('v1', array[:'a'], (select jsonb_object_agg(upper(h.key), jsonb_build_array(h.value)) from jsonb_each(pg_temp.signed(:'a', 'm', '{}')) as h), '{}'),
       webhook.explain_signature('v1', array[:'a'], pg_temp.signed(:'a', 'm', '{}') || '{"webhook-id": "other"}', '{}'),
       webhook.explain_signature('v1', array[:'a'], pg_temp.signed(:'a', 'm', '{}') || '{"Webhook-Timestamp": ["1", "2"]}', '{}'),
       webhook.explain_signature('v1', array[:'a'], pg_temp.signed(:'a', 'm', '{}') - 'Webhook-Id', '{}'),
       webhook.explain_signature('v1', array[:'a'], '{}', '{}');
select webhook.verify('v1', array[:'a'], jsonb_set(s, '{Webhook-Signature}', jsonb_build_array('v1,AAAA', s -> 'Webhook-Signature')), '{}')
  from pg_temp.signed(:'a', 'm', '{}') as s;

-- The others: the body alone, or time and body.
select scheme,
       webhook.explain_signature(scheme, '{other,shh}', headers, 'body'),
       webhook.explain_signature(scheme, '{other}', headers, 'body'),
       webhook.explain_signature(scheme, '{shh}', headers, 'bodY'),
       webhook.explain_signature(scheme, '{shh}', '{}', 'body'),
       webhook.explain_signature(scheme, '{shh}', headers, 'body', at => clock_timestamp() + interval '10 minutes'),
       webhook.explain_signature(scheme, '{shh}', headers, 'body', at => clock_timestamp() - interval '10 minutes')
  from (select extract(epoch from clock_timestamp())::bigint as at) as t
 cross join lateral (values
   ('github', jsonb_build_object('X-Hub-Signature-256', 'sha256=' || encode(pg_temp.hmac('shh', 'body'), 'hex'))),
   ('github-sha1', jsonb_build_object('X-Hub-Signature-256', 'sha256=' || encode(pg_temp.hmac('shh', 'body'), 'hex'))),
   ('stripe', jsonb_build_object('Stripe-Signature', format('t=%s,v1=00,v1=%s', t.at, encode(pg_temp.hmac('shh', convert_to(t.at || '.body', 'UTF8')), 'hex')))),
   ('slack', jsonb_build_object('X-Slack-Request-Timestamp', t.at::text,
                                'X-Slack-Signature', 'v0=' || encode(pg_temp.hmac('shh', convert_to('v0:' || t.at || ':body', 'UTF8')), 'hex'))),
   ('shopify', jsonb_build_object('X-Shopify-Hmac-Sha256', encode(pg_temp.hmac('shh', 'body'), 'base64')))) as v (scheme, headers);
-- SHA-1 alone proves nothing here.
select webhook.explain_signature('github-sha1', '{shh}', '{"X-Hub-Signature": "sha1=c2d4b0e5ac1bbd1d2a7d9e3b4b0b2b1f4b0b2b1f"}', 'body');

-- HTTP Message Signatures: the digest must be covered and fit; alone it is nothing.
select webhook.explain_signature('rfc9421-hmac-sha256', array[:'a'], headers, body, url => 'https://a.example/in')
  from (select extract(epoch from clock_timestamp())::bigint as at, 'sha-256=:' || encode(sha256('{}'), 'base64') || ':' as digest) as t
 cross join lateral (select format('("@method" "@path" "content-digest");created=%s', t.at) as params,
                            format('("@method" "@path");created=%s', t.at) as bare) as p
 cross join lateral (select encode(pg_temp.hmac(decode(substr(:'a', 7), 'base64'), convert_to(format(
                              E'"@method": POST\n"@path": /in\n"content-digest": %s\n"@signature-params": %s', t.digest, p.params), 'UTF8')), 'base64') as whole,
                            encode(pg_temp.hmac(decode(substr(:'a', 7), 'base64'), convert_to(format(
                              E'"@method": POST\n"@path": /in\n"@signature-params": %s', p.bare), 'UTF8')), 'base64') as partial) as s
 cross join lateral (values
   (1, jsonb_build_object('Content-Digest', t.digest, 'Signature-Input', 'a=' || p.params, 'Signature', 'a=:' || s.whole || ':'), '{}'::bytea),
   (2, jsonb_build_object('Content-Digest', t.digest, 'Signature-Input', 'a=' || p.params, 'Signature', 'a=:' || s.whole || ':'), '{ }'),
   (3, jsonb_build_object('Content-Digest', t.digest), '{}'),
   (4, jsonb_build_object('Content-Digest', t.digest, 'Signature-Input', 'a=' || p.bare, 'Signature', 'a=:' || s.partial || ':'), '{}'),
   (5, jsonb_build_object('Content-Digest', t.digest, 'Signature-Input', 'a=' || p.params, 'Signature', 'b=:' || s.whole || ':'), '{}'),
   (6, jsonb_build_object('Signature-Input', 'a=' || p.params, 'Signature', 'a=:' || s.whole || ':'), '{}')) as v (n, headers, body)
 order by n;

-- Misuse is an error, which repeats no key.
select statement || E'\n' || pg_temp.failure('select ' || statement)
  from (values
    ($$webhook.verify('v2', '{x}', '{}', '')$$),
    ($$webhook.verify('v1', '{}', '{}', '')$$),
    ($$webhook.verify('v1', '{shh-do-not-say}', '{}', '')$$),
    ($$webhook.verify('v1a', '{whsk_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}', '{}', '')$$),
    ($$webhook.verify('github', array[''], '{}', '')$$),
    ($$webhook.verify('github', '{x}', '[]', '')$$),
    ($$webhook.verify('github', '{x}', '{"a": 1}', '')$$),
    ($$webhook.verify('github', '{x}', '{"a": ["b", null]}', '')$$),
    ($$webhook.verify('github', '{x}', '{}', '', '-1 second')$$),
    ($$webhook.verify(null, '{x}', '{}', '')$$),
    ($$webhook.verify('github', null, '{}', '')$$),
    ($$webhook.verify('github', array[null]::text[], '{}', '')$$),
    ($$webhook.verify('github', '{x}', null, '')$$),
    ($$webhook.verify('github', '{x}', '{}', null)$$),
    ($$webhook.explain_signature('github', '{x}', '{}', '', null)$$),
    ($$webhook.explain_signature('github', '{x}', '{}', '', method => null)$$)) as v (statement);
