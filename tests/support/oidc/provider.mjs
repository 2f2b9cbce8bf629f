// A real OpenID provider on loopback. It signs with keys that it makes at each start, so a restart
// is a rotation of keys. Its login page takes any password.
import { createServer } from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, text] = process.argv.slice(2);
const { port, clientId, clientSecret, redirectUri, algorithm, groups, claim } = JSON.parse(text);
const { Provider } = await import(pathToFileURL(join(modules, 'oidc-provider/lib/index.js')).href);

function key(kind, options, more) {
  const jwk = generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' });
  return { ...jwk, kid: randomUUID(), use: 'sig', ...more };
}
const keys = [
  key('rsa', { modulusLength: 2048 }),
  key('ec', { namedCurve: 'P-256' }, { alg: 'ES256' }),
];
const client = {
  client_id: clientId,
  redirect_uris: [redirectUri],
  grant_types: ['authorization_code'],
  response_types: ['code'],
  id_token_signed_response_alg: algorithm,
  ...(clientSecret
    ? { client_secret: clientSecret, token_endpoint_auth_method: 'client_secret_basic' }
    : { token_endpoint_auth_method: 'none' }),
};
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [client],
  jwks: { keys },
  cookies: { keys: [randomUUID()] },
  claims: { openid: ['sub'], profile: ['preferred_username'], groups: [claim] },
  enabledJWA: { idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256'] },
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true } },
  async findAccount(_context, name) {
    return {
      accountId: name,
      async claims() {
        return { sub: name, preferred_username: `${name}@example`, [claim]: groups[name] ?? [] };
      },
    };
  },
});
createServer(provider.callback()).listen(port, '127.0.0.1');
