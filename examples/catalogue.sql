-- A sample catalogue: eight event types of a business that sells access by usage. Run it with psql in a database that has
-- the extension; it is one transaction, so all of it is there or nothing is.
--
-- What each event says about itself is for people: when it is emitted and when not, what a receiver does with it, where
-- the state is read that counts. What its schema says is for machines. Money is a decimal text with its currency beside.

begin;

select webhook.create_source(
  'crm',
  owner => 'Customer team', contact => 'crm@example.com',
  description => 'Customer administration. Switched off by webhook.update_source(''crm'', enabled => false).',
  event_types => '{customer.*,api_key.*}');
select webhook.create_source(
  'billing',
  owner => 'Billing team', contact => 'billing@example.com',
  description => 'Rating and ledger. Switched off by webhook.update_source(''billing'', enabled => false).',
  event_types => '{balance.*,budget.*,usage.*,credit.*}');

-- Customers.

select webhook.create_event_type(
  'customer.created',
  description => 'A customer exists from now on.',
  emitted_when => 'The customer''s account is committed, by whatever channel.',
  not_emitted_when => 'A customer is imported again, or only its contact changes.',
  receiver_action => 'Create your own record, once per subject id.',
  authoritative_state => 'GET /v1/customers/{id}',
  owner => 'Customer team', contact => 'crm@example.com', sensitivity => 'personal', payload_retention => '30 days');
select webhook.add_schema('customer.created', '1',
  '{"type": "object", "additionalProperties": false, "required": ["customer_id", "plan", "created_at"],
    "properties": {
      "customer_id": {"type": "string", "minLength": 1, "description": "Identity of the customer; the subject of the event."},
      "plan": {"type": "string", "enum": ["free", "team", "enterprise"], "description": "What was bought: decides which features to switch on."},
      "country": {"type": "string", "pattern": "^[A-Z]{2}$", "description": "Country of the billing address, ISO 3166: decides the tax.", "x-sensitivity": "personal"},
      "created_at": {"type": "string", "format": "date-time", "description": "When the account was made."}}}',
  '{"customer_id": "c-7", "plan": "team", "country": "DE", "created_at": "2026-01-02T03:04:05Z"}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/customer.created/1');

select webhook.create_event_type(
  'customer.frozen', priority => 0,
  description => 'A customer may use nothing until further notice.',
  emitted_when => 'Access is frozen, by a person or by a rule.',
  not_emitted_when => 'A single key is revoked (api_key.revoked), or the customer leaves.',
  receiver_action => 'Refuse requests of the customer at once; ask for the state when in doubt.',
  authoritative_state => 'GET /v1/customers/{id}/access',
  owner => 'Risk team', contact => 'risk@example.com', sensitivity => 'confidential', payload_retention => '90 days');
select webhook.add_schema('customer.frozen', '1',
  '{"type": "object", "additionalProperties": false, "required": ["customer_id", "reason", "frozen_at"],
    "properties": {
      "customer_id": {"type": "string", "minLength": 1, "description": "Identity of the customer."},
      "reason": {"type": "string", "enum": ["overdue", "abuse", "request"], "description": "Why, in one word: decides what to tell the customer."},
      "frozen_at": {"type": "string", "format": "date-time", "description": "From when on."}}}',
  '{"customer_id": "c-7", "reason": "overdue", "frozen_at": "2026-01-02T03:04:05Z"}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/customer.frozen/1');

-- Keys. The key itself is never in an event.

select webhook.create_event_type(
  'api_key.created',
  description => 'A customer has a further key.',
  emitted_when => 'The key is committed and can be used.',
  not_emitted_when => 'A key is renamed.',
  receiver_action => 'Show it in the list of keys; tell the customer''s administrators.',
  authoritative_state => 'GET /v1/keys/{id}',
  owner => 'Platform team', contact => 'platform@example.com', sensitivity => 'confidential', payload_retention => '30 days',
  sources => '{crm}');
select webhook.add_schema('api_key.created', '1',
  '{"type": "object", "additionalProperties": false, "required": ["api_key_id", "customer_id", "scopes"],
    "properties": {
      "api_key_id": {"type": "string", "minLength": 1, "description": "Identity of the key; not the key."},
      "customer_id": {"type": "string", "minLength": 1, "description": "Whose key it is."},
      "scopes": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "description": "What it may be used for."},
      "expires_at": {"type": ["string", "null"], "format": "date-time", "description": "Until when it can be used; null = no end."}}}',
  '{"api_key_id": "k-12", "customer_id": "c-7", "scopes": ["read"], "expires_at": null}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/api_key.created/1');

select webhook.create_event_type(
  'api_key.revoked', priority => 0,
  description => 'A key must not be accepted any more.',
  emitted_when => 'The key is revoked, by whomever.',
  not_emitted_when => 'A key runs out at its announced end.',
  receiver_action => 'Drop the key from every cache at once.',
  authoritative_state => 'GET /v1/keys/{id}',
  owner => 'Platform team', contact => 'platform@example.com', sensitivity => 'confidential', payload_retention => '90 days',
  sources => '{crm}');
select webhook.add_schema('api_key.revoked', '1',
  '{"type": "object", "additionalProperties": false, "required": ["api_key_id", "customer_id", "revoked_at"],
    "properties": {
      "api_key_id": {"type": "string", "minLength": 1, "description": "Identity of the key; not the key."},
      "customer_id": {"type": "string", "minLength": 1, "description": "Whose key it was."},
      "revoked_at": {"type": "string", "format": "date-time", "description": "From when on it is void."}}}',
  '{"api_key_id": "k-12", "customer_id": "c-7", "revoked_at": "2026-01-02T03:04:05Z"}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/api_key.revoked/1');

-- Thresholds: webhook.observe('acme', 'customer', 'c-7', 'customer.balance', 9.50) emits balance.low when the balance
-- falls to 10 or below, once, and again only after it was at 20.

select webhook.create_event_type(
  'balance.low', priority => 0,
  description => 'A prepaid balance is about to run out.',
  emitted_when => 'The balance falls to the threshold or below it.',
  not_emitted_when => 'It falls further, or is corrected by an adjustment; it must reach the upper mark first.',
  receiver_action => 'Ask the customer to top up.',
  authoritative_state => 'GET /v1/customers/{id}/balance',
  owner => 'Billing team', contact => 'billing@example.com', sensitivity => 'confidential', payload_retention => '60 days');
select webhook.add_schema('balance.low', '1',
  '{"type": "object", "additionalProperties": false, "required": ["metric", "threshold_name", "threshold", "direction", "value", "observation"],
    "properties": {
      "metric": {"const": "customer.balance", "description": "What was observed."},
      "threshold_name": {"type": "string", "description": "Which mark was crossed."},
      "threshold": {"type": "string", "pattern": "^-?[0-9]+\\.[0-9]{2}$", "description": "The mark.", "x-money": {"currency": "EUR", "precision": 2, "rounding": "half_even"}},
      "direction": {"const": "down", "description": "Which way."},
      "value": {"type": "string", "pattern": "^-?[0-9]+\\.[0-9]{2}$", "description": "The balance now.", "x-money": {"currency": "EUR", "precision": 2, "rounding": "half_even"}},
      "previous_value": {"type": "string", "pattern": "^-?[0-9]+\\.[0-9]{2}$", "description": "The balance before.", "x-money": {"currency": "EUR", "precision": 2, "rounding": "half_even"}},
      "observation": {"type": "integer", "minimum": 1, "description": "Number of the value: a higher one is newer."}}}',
  '{"metric": "customer.balance", "threshold_name": "low", "threshold": "10.00", "direction": "down", "value": "9.50", "previous_value": "12.00", "observation": 7}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/balance.low/1');
select webhook.create_threshold('customer.balance', 'low', 10.00, 'balance.low',
  direction => 'down', rearm => 'margin', rearm_at => 20.00, adjustments_cross => false);

select webhook.create_event_type(
  'budget.threshold_crossed',
  description => 'Usage has reached a share of the budget.',
  emitted_when => 'The share used reaches 50, 80 or 100 per cent, coming from below.',
  not_emitted_when => 'More is used beyond a mark that was told already.',
  receiver_action => 'Tell the owner of the budget; at 100 stop what can be stopped.',
  authoritative_state => 'GET /v1/budgets/{id}',
  owner => 'Billing team', contact => 'billing@example.com', sensitivity => 'internal', payload_retention => '60 days');
select webhook.add_schema('budget.threshold_crossed', '1',
  '{"type": "object", "required": ["metric", "threshold_name", "threshold", "direction", "value", "observation"],
    "properties": {
      "metric": {"const": "budget.used_percent", "description": "What was observed."},
      "threshold_name": {"type": "string", "enum": ["half", "most", "all"], "description": "Which mark was crossed."},
      "threshold": {"type": "string", "description": "The mark, in per cent of the budget."},
      "direction": {"const": "up", "description": "Which way."},
      "value": {"type": "string", "description": "Share used now, in per cent."},
      "previous_value": {"type": "string", "description": "Share used before."},
      "observation": {"type": "integer", "minimum": 1, "description": "Number of the value: a higher one is newer."}}}',
  '{"metric": "budget.used_percent", "threshold_name": "most", "threshold": "80", "direction": "up", "value": "81.5", "previous_value": "79", "observation": 40}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/budget.threshold_crossed/1');
select webhook.create_threshold('budget.used_percent', 'half', 50, 'budget.threshold_crossed');
select webhook.create_threshold('budget.used_percent', 'most', 80, 'budget.threshold_crossed');
select webhook.create_threshold('budget.used_percent', 'all', 100, 'budget.threshold_crossed');

-- Ledger.

select webhook.create_event_type(
  'usage.finalized',
  description => 'The usage of a period is final and will be invoiced.',
  emitted_when => 'The period is closed and rated.',
  not_emitted_when => 'Usage is still being collected, or a closed period is corrected (credit.adjustment_posted).',
  receiver_action => 'Book the usage, once per subject id.',
  authoritative_state => 'GET /v1/usage/{id}',
  owner => 'Billing team', contact => 'billing@example.com', sensitivity => 'confidential', payload_retention => '90 days');
select webhook.add_schema('usage.finalized', '1',
  '{"type": "object", "additionalProperties": false, "required": ["usage_id", "customer_id", "period", "units", "amount", "currency"],
    "properties": {
      "usage_id": {"type": "string", "minLength": 1, "description": "Identity of the rated period."},
      "customer_id": {"type": "string", "minLength": 1, "description": "Who used it."},
      "period": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$", "description": "Month, UTC."},
      "units": {"type": "integer", "minimum": 0, "description": "Units used."},
      "amount": {"type": "string", "pattern": "^[0-9]+\\.[0-9]{2}$", "description": "What they cost, tax excluded.",
                 "x-money": {"currency_field": "currency", "precision": 2, "rounding": "half_even"}},
      "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "description": "Currency of the amount, ISO 4217."}}}',
  '{"usage_id": "u-99", "customer_id": "c-7", "period": "2026-01", "units": 123456, "amount": "1234.56", "currency": "EUR"}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/usage.finalized/1');

select webhook.create_event_type(
  'credit.adjustment_posted',
  description => 'The ledger was corrected in favour or to the debit of a customer.',
  emitted_when => 'The correction is posted.',
  not_emitted_when => 'It is proposed, or waits for approval.',
  receiver_action => 'Book it, once per subject id.',
  authoritative_state => 'GET /v1/ledger/{id}',
  owner => 'Billing team', contact => 'billing@example.com', sensitivity => 'confidential', payload_retention => '90 days');
select webhook.add_schema('credit.adjustment_posted', '1',
  '{"$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object", "additionalProperties": false, "required": ["entry_id", "customer_id", "amount", "currency", "corrects"],
    "properties": {
      "entry_id": {"type": "string", "minLength": 1, "description": "Identity of the ledger entry."},
      "customer_id": {"type": "string", "minLength": 1, "description": "Whose ledger it is."},
      "amount": {"type": "integer", "description": "In minor units; negative = to the debit of the customer.",
                 "x-money": {"currency_field": "currency", "precision": 2, "rounding": "none"}},
      "currency": {"type": "string", "pattern": "^[A-Z]{3}$", "description": "Currency of the amount, ISO 4217."},
      "corrects": {"type": ["string", "null"], "description": "Usage that was wrong; null = goodwill."}}}',
  '{"entry_id": "l-5", "customer_id": "c-7", "amount": -1999, "currency": "EUR", "corrects": "u-99"}',
  mode => 'enforce', change_note => 'First version.', uri => 'https://docs.example.com/events/credit.adjustment_posted/1');

commit;
