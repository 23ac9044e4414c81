-- Policies: making, changing, deleting them; every refusal.
\pset format unaligned
\pset tuples_only on
\set SHOW_CONTEXT never

\getenv here PG_ABS_SRCDIR
\i :here/support/failure.sql

-- One is there, and says nothing: everything is the server's setting.
select name, retry_schedule, client_error_attempts, retry_after_max, max_in_flight, rate, burst, max_age, disable_after, disable_failures, description, (created_at, changed_at, changed_by) is not null
  from webhook.policies;

-- Nothing is committed below: no leader acts on it.
begin;
select webhook.create_policy('empty');
select webhook.create_policy(
  'full', retry_schedule => '1s,2m,3h,4d', client_error_attempts => 3, retry_after_max => '1 hour', max_in_flight => 4, rate => 2.5, burst => 5,
  max_age => '2 days', disable_after => '3 days', disable_failures => 50, description => 'everything said');
select webhook.create_policy('never.again_1-x', retry_schedule => '', description => '');
select name, retry_schedule, client_error_attempts, retry_after_max, max_in_flight, rate, burst, max_age, disable_after, disable_failures, description, changed_by = session_user
  from webhook.policies where name <> 'default' order by name;

-- The ends of every range.
select webhook.create_policy('low', null, 1, '0', 1, 0.001, 1, '1 s', '60 s', 1);
select webhook.create_policy('high', array_to_string(array_fill('30d'::text, '{50}'), ','), 50, '30 d', 1000, 100000, 100000, '365 d', '365 d', 1000000);

-- Changing: what is left out stays; what is reset is said by "default" again.
select webhook.update_policy('full', rate => 1, description => 'changed');
select webhook.update_policy('full', reset => '{burst,max_age,max_age}', retry_schedule => '');
select webhook.update_policy('full', description => '', reset => '{}');
select webhook.update_policy('full', reset => '{client_error_attempts,retry_after_max,max_in_flight,disable_after,disable_failures}');
select name, retry_schedule, client_error_attempts, retry_after_max, max_in_flight, rate, burst, max_age, disable_after, disable_failures, description, changed_at > created_at
  from webhook.policies where name = 'full';
select webhook.update_policy('full', reset => '{retry_schedule,rate,description}');
select retry_schedule, rate, description from webhook.policies where name = 'full';
select changed_xid = pg_current_xact_id() from webhook._policy where name = 'full';
select webhook.update_policy('default', retry_schedule => '1m', disable_failures => 5);
select retry_schedule, disable_failures from webhook.policies where name = 'default';

-- The session's styles do not matter.
set local intervalstyle = 'sql_standard';
set local extra_float_digits = -10;
select webhook.create_policy('styled', rate => 0.123456789, max_age => '1 day 2:03:04');
select webhook.update_policy('styled', retry_after_max => '90 min');
reset intervalstyle;
reset extra_float_digits;
select rate = 0.123456789::real, max_age, retry_after_max from webhook.policies where name = 'styled';

-- What is said of it in the audit log: the values that changed.
select verb, object_id, before, after from webhook.audit_log where object_kind = 'policy' and object_id in ('full', 'default', 'styled') order by at;

-- Deleting: not while an endpoint names it that is not deleted.
select endpoint_id from webhook.create_endpoint('acme', 'https://127.0.0.1/', policy => 'full', verify => 'none') \gset
select endpoint_id as second from webhook.create_endpoint('acme', 'https://127.0.0.1/', policy => 'full', verify => 'none') \gset
select pg_temp.failure($$select webhook.delete_policy('full')$$);
select webhook.update_endpoint(:second, policy => 'empty');
select pg_temp.failure($$select webhook.delete_policy('full')$$);
select webhook.delete_endpoint(:endpoint_id, 'over');
select webhook.delete_policy('full');
select verb, before, after from webhook.audit_log where object_kind = 'policy' and object_id = 'full' and verb = 'delete_policy';
select pg_temp.failure($$select webhook.delete_policy('full')$$);
select pg_temp.failure($$select webhook.delete_policy('default')$$);
select name from webhook.policies order by name;

-- A restored "default" replaces the one that is there, and no other.
insert into webhook._policy (name, rate) values ('default', 7);
select rate from webhook.policies where name = 'default';
select pg_temp.failure($$insert into webhook._policy (name) values ('empty')$$);

-- NULL where it makes no sense.
select pg_temp.failure($$select webhook.create_policy(null)$$);
select pg_temp.failure($$select webhook.update_policy(null)$$);
select pg_temp.failure($$select webhook.update_policy('empty', reset => '{rate,null}')$$);
select pg_temp.failure($$select webhook.delete_policy(null)$$);

-- Arguments.
select pg_temp.failure($$select webhook.create_policy('empty')$$);
select pg_temp.failure($$select webhook.create_policy('default')$$);
select pg_temp.failure($$select webhook.create_policy('')$$);
select pg_temp.failure($$select webhook.create_policy('two words')$$);
select pg_temp.failure($$select webhook.create_policy(repeat('x', 129))$$);
select pg_temp.failure($$select webhook.create_policy('p', retry_schedule => 'soon')$$);
select pg_temp.failure($$select webhook.create_policy('p', retry_schedule => '5s,31d')$$);
select pg_temp.failure(format($$select webhook.create_policy('p', %s)$$, bad))
  from unnest('{client_error_attempts => 0,client_error_attempts => 51,retry_after_max => ''-1 s'',retry_after_max => ''31 d'',max_in_flight => 0,max_in_flight => 1001,rate => 0,rate => -1,rate => ''NaN'',rate => ''Infinity'',burst => 0,burst => 100001,max_age => ''0'',max_age => ''366 d'',disable_after => ''59 s'',disable_after => ''366 d'',disable_failures => 0,disable_failures => 1000001}'::text[]) as bad;
select pg_temp.failure($$select webhook.update_policy('empty', rate => 0)$$);
select pg_temp.failure($$select webhook.update_policy('empty', retry_schedule => '5')$$);
select pg_temp.failure($$select webhook.update_policy('nowhere', rate => 1)$$);
select pg_temp.failure($$select webhook.update_policy('empty', reset => '{colour}')$$);
select pg_temp.failure($$select webhook.update_policy('empty', reset => '{name}')$$);
select pg_temp.failure($$select webhook.update_policy('empty', rate => 1, reset => '{rate}')$$);
select pg_temp.failure($$select webhook.delete_policy('nowhere')$$);
rollback;

-- Sessions that cannot write.
begin read only;
select pg_temp.failure($$select webhook.create_policy('p')$$);
select pg_temp.failure($$select webhook.update_policy('default')$$);
select pg_temp.failure($$select webhook.delete_policy('p')$$);
rollback;
