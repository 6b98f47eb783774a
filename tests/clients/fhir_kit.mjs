// fhir-kit-client.  usage: node fhir_kit.mjs BASE_URL; prints one JSON line a step.
import { Client } from "fhir-kit-client";
import { bundle, NAMES, patient, run, SYSTEM } from "./steps.mjs";

const client = new Client({ baseUrl: process.argv[2] });
const name = "fhir-kit";
const asked = { identifier: `${SYSTEM}|${name}`, family: "Page", _sort: "given" };
const givens = (page) => page.entry.map((one) => one.resource.name[0].given[0]);
let made;

await run({
  create: async () => {
    made = await client.create({ resourceType: "Patient", body: patient(name, "Create", "a") });
    return [made.meta.versionId, made.name[0].family];
  },
  read: async () => (await client.read({ resourceType: "Patient", id: made.id })).name[0].family,
  missing: async () => client.read({ resourceType: "Patient", id: "missing" }),
  search: async () => {
    for (const given of NAMES) await client.create({ resourceType: "Patient", body: patient(name, "Page", given) });
    return givens(await client.search({ resourceType: "Patient", searchParams: asked }));
  },
  page: async () => {
    const pages = [];
    let page = await client.search({ resourceType: "Patient", searchParams: { ...asked, _count: 2 } });
    while (page) {
      pages.push(givens(page));
      page = await client.nextPage({ bundle: page });
    }
    return pages;
  },
  update: async () => {
    made = await client.update({ resourceType: "Patient", id: made.id, body: { ...made, name: [{ family: "Update" }] } });
    return [made.meta.versionId, made.name[0].family];
  },
  patch: async () => {
    const jsonPatch = [{ op: "replace", path: "/name/0/family", value: "Patch" }];
    made = await client.patch({ resourceType: "Patient", id: made.id, jsonPatch });
    return [made.meta.versionId, made.name[0].family];
  },
  transaction: async () => {
    const answer = await client.transaction({ body: bundle(name) });
    const id = answer.entry[1].response.location.split("/").at(-3);
    const observation = await client.read({ resourceType: "Observation", id });
    return [answer.entry.map((one) => one.response.status.slice(0, 3)), observation.subject.reference.split("/")[0]];
  },
  history: async () => {
    const found = await client.history({ resourceType: "Patient", id: made.id });
    return found.entry.map((one) => one.resource.meta.versionId);
  },
  graphql: async () => {
    const query = `{ Patient(id: "${made.id}") { name { family } } }`;
    return (await client.operation({ name: "graphql", method: "POST", input: { query } })).data;
  },
  delete: async () => {
    await client.delete({ resourceType: "Patient", id: made.id });
    return client.read({ resourceType: "Patient", id: made.id });
  },
}, (error) => error.response?.data?.issue?.[0]?.code);
