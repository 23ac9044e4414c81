-- Proof of control and expiry as SQL sees them: defaults, arguments, what is refused, what is kept.
\pset format unaligned
\pset tuples_only on

-- Without a word an endpoint is to be proven; with none its maker vouches for it, and is named.
select endpoint_id as asked from webhook.create_endpoint('proof', 'https://127.0.0.1/a') \gset
select endpoint_id as spared from webhook.create_endpoint('proof', 'https://127.0.0.1/b?token=x', verify => 'none') \gset
select state, verify, verified_by, verified_at is null as unproven, expires_at
  from webhook.endpoints where endpoint_id in (:asked, :spared) order by endpoint_id;
select method, host, result, overridden_by = session_user as named, status, detail
  from webhook.verifications where endpoint_id = :spared;

-- Arguments; messages hold ids, which differ from run to run, so some show the SQLSTATE alone.
\set VERBOSITY default
select webhook.create_endpoint('proof', 'https://127.0.0.1/c', verify => 'prayer');
select webhook.create_endpoint('proof', 'https://127.0.0.1/c', verify => null);
select webhook.create_endpoint('proof', 'https://127.0.0.1/c', expires_at => clock_timestamp() - interval '1 s');
select webhook.update_endpoint(:asked, verify => 'prayer');
select webhook.verify_endpoint(:asked, 'prayer');
select webhook.verify_endpoint(null);
select webhook.verify_endpoint(1);
select webhook.verify_endpoint(:asked, 'none');
select webhook.verify_endpoint(:asked, 'none', ' ');
select webhook.verify_endpoint(:asked, reason => repeat('x', 1001));
\set VERBOSITY sqlstate
select webhook.verify_endpoint(:spared);
select webhook.pause('endpoint', :'asked', 'before it is proven');
\set VERBOSITY default
select webhook.renew_endpoint(:asked, null);
select webhook.renew_endpoint(:asked, clock_timestamp());
select webhook.renew_endpoint(:asked, '-infinity');
select webhook.renew_endpoint(null, 'infinity');
select webhook.renew_endpoint(1, 'infinity');
begin read only;
select webhook.verify_endpoint(:asked);
rollback;
begin read only;
select webhook.renew_endpoint(:asked, 'infinity');
rollback;

-- Before anything is proven a new URL simply replaces the old one; of a proven one the old stays in force.
select webhook.update_endpoint(:asked, url => 'https://127.0.0.1/a2');
select url, pending_host, state from webhook.endpoints where endpoint_id = :asked;
select webhook.verify_endpoint(:asked, 'none', 'seen on the telephone');
select url, pending_host, state, verified_by, verify from webhook.endpoints where endpoint_id = :asked;
select webhook.update_endpoint(:asked, url => 'https://127.0.0.1/a3?token=secret');
select url, pending_host, state from webhook.endpoints where endpoint_id = :asked;
-- Named again, the old one withdraws the new one.
select webhook.update_endpoint(:asked, url => 'https://127.0.0.1/a2');
select url, pending_host, state from webhook.endpoints where endpoint_id = :asked;
-- With none the new one is in force at once; without a method it stays so.
select webhook.update_endpoint(:asked, url => 'https://127.0.0.1/a4', verify => 'none');
select url, pending_host, state, verify from webhook.endpoints where endpoint_id = :asked;
select webhook.update_endpoint(:asked, url => 'https://127.0.0.1/a5');
select url, pending_host, state, verify from webhook.endpoints where endpoint_id = :asked;
-- Another method asks for a proof of the URL in force, which stays in service.
select webhook.update_endpoint(:asked, verify => 'slack');
select url, pending_host, state, verify from webhook.endpoints where endpoint_id = :asked;
select count(*) from webhook.verifications where endpoint_id = :asked and result = 'overridden';
-- The audit log has it all, of a URL the host only.
select verb, before, after, reason from webhook.audit_log where object_id = :'asked' order by audit_id;

-- Terms.
select webhook.renew_endpoint(:spared, '2999-01-01 00:00:00+00');
select expires_at = '2999-01-01 00:00:00+00' from webhook.endpoints where endpoint_id = :spared;
select webhook.renew_endpoint(:spared, 'infinity');
select expires_at from webhook.endpoints where endpoint_id = :spared;
select verb, before ? 'expires_at', after ? 'expires_at' from webhook.audit_log
 where object_id = :'spared' and verb = 'renew_endpoint' order by audit_id;

-- Disabling and enabling is no way around the proof.
select endpoint_id as detour from webhook.create_endpoint('proof', 'https://127.0.0.1/d') \gset
select webhook.disable_endpoint(:detour, 'for now');
select webhook.enable_endpoint(:detour);
select state from webhook.endpoints where endpoint_id = :detour;
select webhook.verify_endpoint(:detour, 'none', 'vouched for');
select webhook.disable_endpoint(:detour, 'for now');
select webhook.enable_endpoint(:detour);
select state from webhook.endpoints where endpoint_id = :detour;
select webhook.delete_endpoint(:detour, 'no more');
\set VERBOSITY sqlstate
select webhook.verify_endpoint(:detour);
select webhook.renew_endpoint(:detour, 'infinity');
