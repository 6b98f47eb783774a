// MedplumClient (@medplum/core).  usage: node medplum.mjs BASE_URL; prints one JSON line a step.
import { MedplumClient } from "@medplum/core";
import { bundle, NAMES, patient, run, SYSTEM } from "./steps.mjs";

const base = process.argv[2];
const at = base.lastIndexOf("/") + 1;
const client = new MedplumClient({ baseUrl: base.slice(0, at), fhirUrlPath: base.slice(at), cacheTime: 0 });
const name = "medplum";
let made;

await run({
  create: async () => {
    made = await client.createResource(patient(name, "Create", "a"));
    return [made.meta.versionId, made.name[0].family];
  },
  read: async () => (await client.readResource("Patient", made.id)).name[0].family,
  missing: async () => client.readResource("Patient", "missing"),
  search: async () => {
    for (const given of NAMES) await client.createResource(patient(name, "Page", given));
    const found = await client.searchResources("Patient", { identifier: `${SYSTEM}|${name}`, family: "Page", _sort: "given" });
    return found.map((one) => one.name[0].given[0]);
  },
  page: async () => {
    const pages = [];
    const asked = { identifier: `${SYSTEM}|${name}`, family: "Page", _sort: "given", _count: "2" };
    for await (const page of client.searchResourcePages("Patient", asked)) pages.push(page.map((one) => one.name[0].given[0]));
    return pages;
  },
  update: async () => {
    made = await client.updateResource({ ...made, name: [{ family: "Update" }] });
    return [made.meta.versionId, made.name[0].family];
  },
  patch: async () => {
    made = await client.patchResource("Patient", made.id, [{ op: "replace", path: "/name/0/family", value: "Patch" }]);
    return [made.meta.versionId, made.name[0].family];
  },
  transaction: async () => {
    const answer = await client.executeBatch(bundle(name));
    const location = answer.entry[1].response.location;
    const observation = await client.readResource("Observation", location.split("/").at(-3));
    return [answer.entry.map((one) => one.response.status.slice(0, 3)), observation.subject.reference.split("/")[0]];
  },
  history: async () => {
    const found = await client.readHistory("Patient", made.id);
    return found.entry.map((one) => one.resource.meta.versionId);
  },
  graphql: async () => {
    const found = await client.graphql(`{ Patient(id: "${made.id}") { name { family } } }`);
    return found.data;
  },
  delete: async () => {
    await client.deleteResource("Patient", made.id);
    return client.readResource("Patient", made.id);
  },
}, (error) => error.outcome?.issue?.[0]?.code);
