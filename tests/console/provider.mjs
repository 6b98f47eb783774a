// A real OpenID provider (panva/node-oidc-provider) with people, for the sign-in tests of the console.
// node provider.mjs PORT REDIRECT_URI ...   prints "ready"; its sign-in form takes any name of PEOPLE without a password.
import * as oidc from 'oidc-provider';

const [port, ...redirects] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const people = { ada: ['ipf-admin'], olga: ['ipf-operator'], vic: ['ipf-viewer'], nobody: [] };
const provider = new oidc.Provider(issuer, {
  clients: [{
    client_id: 'console', client_secret: 'a secret: with signs', grant_types: ['authorization_code'], response_types: ['code'],
    redirect_uris: redirects.map((one) => `${one}/sign-in/callback`), post_logout_redirect_uris: redirects.map((one) => `${one}/signed-out`),
  }],
  cookies: { keys: ['for tests'] },
  claims: { openid: ['sub', 'roles'], profile: ['name'], email: ['email'] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, name: `${id} of the ward`, roles: people[id] || [] }) }),
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
