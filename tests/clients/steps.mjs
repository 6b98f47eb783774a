// What both JavaScript clients share: the resources, and the JSON line of each step.
export const SYSTEM = "urn:ipf:clients";
export const NAMES = ["a", "b", "c", "d"];

export const patient = (client, family, given) => ({
  resourceType: "Patient",
  identifier: [{ system: SYSTEM, value: client }],
  name: [{ family, given: [given] }],
});

export const bundle = (client) => ({
  resourceType: "Bundle",
  type: "transaction",
  entry: [
    {
      fullUrl: "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55",
      resource: patient(client, "Transaction", "a"),
      request: { method: "POST", url: "Patient" },
    },
    {
      resource: {
        resourceType: "Observation",
        status: "final",
        code: { text: client },
        subject: { reference: "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55" },
      },
      request: { method: "POST", url: "Observation" },
    },
  ],
});

// `codeOf`: the issue code of the OperationOutcome in an error of the client.
export async function run(steps, codeOf) {
  for (const [step, perform] of Object.entries(steps)) {
    let result;
    try {
      result = await perform();
    } catch (error) {
      result = { error: codeOf(error) ?? String(error) };
    }
    console.log(JSON.stringify({ step, result }));
  }
}
