// Judges recorded requests with public libraries of npm and with Node's own cryptography, which know nothing of this
// project. Reads lines of JSON and answers each with one line: "ok", "not mine", or the library's objection.

import '@shopify/shopify-api/adapters/node';

import { createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { verify as verifyGithub } from '@octokit/webhooks-methods';
import { ApiVersion, shopifyApi } from '@shopify/shopify-api';
import { HTTP } from 'cloudevents';
import Stripe from 'stripe';

const { verifySlackRequest } = createRequire(import.meta.url)('@slack/bolt/dist/receivers/verify-request.js');
const stripe = new Stripe('sk_test_of_nobody');

// Members of objects in one order: theirs says nothing.
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

function expect(name, found, wanted) {
  if (JSON.stringify(sorted(found)) !== JSON.stringify(sorted(wanted))) {
    throw new Error(`${name} is ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
  }
}

function cloudevent({ format, event }, headers, body) {
  const read = HTTP.toEvent({ headers, body: body.toString('utf8') });
  read.validate();
  // This library leaves the percent-encoding of binary mode to its user.
  const plain = (value) => (format === 'cloudevents-binary' && typeof value === 'string' ? decodeURIComponent(value) : value);
  expect('id', read.id, event.id);
  expect('type', read.type, event.type);
  // A reference of ours may hold escapes itself: one round of decoding gives it back.
  expect('source', plain(read.source), event.source);
  expect('subject', plain(read.subject), event.subject ?? undefined);
  expect('time', Date.parse(read.time), Date.parse(event.occurred_at));
  // In binary mode this library takes a number, true, false or null for a text that lost its quotes.
  const scalar = event.data === null || !['object', 'string'].includes(typeof event.data);
  if (!('data' in event)) {
    expect('data', read.data || null, null);
  } else if (event.data === null && format === 'cloudevents-structured') {
    // To this library null is no data; the other judge looks for it in the body.
    expect('data', read.data ?? null, null);
  } else {
    expect('data', format === 'cloudevents-binary' && scalar ? JSON.parse(read.data) : read.data, event.data);
  }
  for (const [name, value] of Object.entries(event.extensions)) {
    expect(name, plain(read[name]), value);
  }
}

function v1a({ secret }, headers, body) {
  const raw = Buffer.from(secret.replace(/^whpk_/, ''), 'base64');
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') }, format: 'jwk' });
  const signed = Buffer.concat([Buffer.from(`${headers['webhook-id']}.${headers['webhook-timestamp']}.`), body]);
  const signatures = headers['webhook-signature'].split(' ').filter((one) => one.startsWith('v1a,'));
  if (!signatures.some((one) => verify(null, signed, key, Buffer.from(one.slice(4), 'base64')))) {
    throw new Error('no signature fits');
  }
}

async function shopify({ secret }, headers, body) {
  const api = shopifyApi({
    apiKey: 'nobody', apiSecretKey: secret, apiVersion: ApiVersion[Object.keys(ApiVersion)[0]],
    hostName: 'nobody.example.com', isEmbeddedApp: false, isCustomStoreApp: false, logger: { level: 0 },
  });
  const said = await api.webhooks.validate({ rawBody: body.toString('utf8'), rawRequest: { headers, method: 'POST', url: '/' } });
  if (!said.valid) throw new Error(`not valid: ${said.reason} ${said.missingHeaders ?? ''}`);
  expect('webhook id', said.webhookId, headers['webhook-id']);
}

const judges = {
  v1a,
  github: async ({ secret }, headers, body) => {
    if (!(await verifyGithub(secret, body.toString('utf8'), headers['x-hub-signature-256']))) throw new Error('refused');
  },
  stripe: ({ secret }, headers, body) => stripe.webhooks.constructEvent(body, headers['stripe-signature'], secret),
  slack: ({ secret }, headers, body) => verifySlackRequest({ signingSecret: secret, body: body.toString('utf8'), headers: {
    'x-slack-signature': headers['x-slack-signature'],
    'x-slack-request-timestamp': Number(headers['x-slack-request-timestamp']),
  } }),
  shopify,
};
// No library looks at the older header of GitHub: it is computed here, by its documentation.
judges['github-sha1'] = async ({ secret }, headers, body) => {
  const wanted = Buffer.from(`sha1=${createHmac('sha1', secret).update(body).digest('hex')}`);
  const found = Buffer.from(headers['x-hub-signature'] ?? '');
  if (found.length !== wanted.length || !timingSafeEqual(found, wanted)) throw new Error('refused');
  await judges.github({ secret }, headers, body);
};

async function judge(request) {
  const headers = Object.fromEntries(request.headers.map(([name, value]) => [name.toLowerCase(), value]));
  const body = Buffer.from(request.body, 'base64');
  let judged = false;
  if (judges[request.profile]) {
    await judges[request.profile](request, headers, body);
    judged = true;
  }
  if (request.format.startsWith('cloudevents') && request.event) {
    cloudevent(request, headers, body);
    judged = true;
  }
  return judged ? 'ok' : 'not mine';
}

for (const line of readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  try {
    console.log(await judge(JSON.parse(line)));
  } catch (objection) {
    console.log(`refused: ${String(objection).replaceAll('\n', ' ')}`);
  }
}
