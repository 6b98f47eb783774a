// HAPI FHIR's generic client.  usage: java -cp 'JARS/*' HapiSteps.java BASE_URL; prints one JSON line a step.

import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.rest.api.Constants;
import ca.uhn.fhir.rest.api.MethodOutcome;
import ca.uhn.fhir.rest.client.api.IGenericClient;
import ca.uhn.fhir.rest.client.api.ServerValidationModeEnum;
import ca.uhn.fhir.rest.server.exceptions.BaseServerResponseException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import org.hl7.fhir.r4.model.Bundle;
import org.hl7.fhir.r4.model.CodeType;
import org.hl7.fhir.r4.model.IdType;
import org.hl7.fhir.r4.model.Observation;
import org.hl7.fhir.r4.model.OperationOutcome;
import org.hl7.fhir.r4.model.Parameters;
import org.hl7.fhir.r4.model.Patient;
import org.hl7.fhir.r4.model.Reference;
import org.hl7.fhir.r4.model.StringType;

public class HapiSteps {
    static final String SYSTEM = "urn:ipf:clients", NAME = "hapi";
    static IGenericClient client;
    static Patient made;

    static Patient patient(String family, String given) {
        Patient patient = new Patient();
        patient.addIdentifier().setSystem(SYSTEM).setValue(NAME);
        patient.addName().setFamily(family).addGiven(given);
        return patient;
    }

    static String quoted(String text) {
        return "\"" + text + "\"";
    }

    static String list(List<String> texts) {
        return texts.stream().collect(Collectors.joining(",", "[", "]"));
    }

    static String of(Patient patient) {
        return list(List.of(quoted(patient.getMeta().getVersionId()), quoted(patient.getNameFirstRep().getFamily())));
    }

    static String givens(Bundle page) {
        return list(page.getEntry().stream()
            .map(one -> quoted(((Patient) one.getResource()).getNameFirstRep().getGiven().get(0).getValue()))
            .collect(Collectors.toList()));
    }

    static void step(String name, Callable<String> perform) {
        String result;
        try {
            result = perform.call();
        } catch (BaseServerResponseException refused) {
            OperationOutcome outcome = (OperationOutcome) refused.getOperationOutcome();
            String code = outcome == null ? refused.toString() : outcome.getIssueFirstRep().getCode().toCode();
            result = "{\"error\":" + quoted(code) + "}";
        } catch (Exception error) {
            result = "{\"error\":" + quoted(error.toString().replace("\"", "'").replace("\n", " ")) + "}";
        }
        System.out.println("{\"step\":" + quoted(name) + ",\"result\":" + result + "}");
    }

    static Bundle found(int count) {
        var search = client.search().forResource(Patient.class)
            .where(Patient.IDENTIFIER.exactly().systemAndCode(SYSTEM, NAME))
            .and(Patient.FAMILY.matches().value("Page")).sort().ascending(Patient.GIVEN).returnBundle(Bundle.class);
        return (count == 0 ? search : search.count(count)).execute();
    }

    static Bundle transaction() {
        Bundle bundle = new Bundle().setType(Bundle.BundleType.TRANSACTION);
        String id = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55";
        bundle.addEntry().setFullUrl(id).setResource(patient("Transaction", "a"))
            .getRequest().setMethod(Bundle.HTTPVerb.POST).setUrl("Patient");
        Observation observation = new Observation().setStatus(Observation.ObservationStatus.FINAL);
        observation.getCode().setText(NAME);
        observation.setSubject(new Reference(id));
        bundle.addEntry().setResource(observation).getRequest().setMethod(Bundle.HTTPVerb.POST).setUrl("Observation");
        return bundle;
    }

    static Parameters replaced(String path, String value) {
        Parameters patch = new Parameters();
        var operation = patch.addParameter().setName("operation");
        operation.addPart().setName("type").setValue(new CodeType("replace"));
        operation.addPart().setName("path").setValue(new StringType(path));
        operation.addPart().setName("value").setValue(new StringType(value));
        return patch;
    }

    public static void main(String[] arguments) {
        FhirContext context = FhirContext.forR4();
        context.getRestfulClientFactory().setSocketTimeout(120_000);
        context.getRestfulClientFactory().setServerValidationMode(ServerValidationModeEnum.ONCE); // reads the statement
        client = context.newRestfulGenericClient(arguments[0]);

        step("create", () -> {
            MethodOutcome outcome = client.create().resource(patient("Create", "a")).execute();
            made = (Patient) outcome.getResource();
            return of(made);
        });
        step("read", () -> quoted(client.read().resource(Patient.class).withId(made.getIdElement().getIdPart())
            .execute().getNameFirstRep().getFamily()));
        step("missing", () -> quoted(client.read().resource(Patient.class).withId("missing").execute().getId()));
        step("search", () -> {
            for (String given : List.of("a", "b", "c", "d")) {
                client.create().resource(patient("Page", given)).execute();
            }
            return givens(found(0));
        });
        step("page", () -> {
            List<String> pages = new ArrayList<>();
            Bundle page = found(2);
            pages.add(givens(page));
            while (page.getLink(Constants.LINK_NEXT) != null) {
                page = client.loadPage().next(page).execute();
                pages.add(givens(page));
            }
            return list(pages);
        });
        step("update", () -> {
            made.getNameFirstRep().setFamily("Update");
            made = (Patient) client.update().resource(made).execute().getResource();
            return of(made);
        });
        step("patch", () -> {
            IdType id = made.getIdElement().toUnqualifiedVersionless();
            made = (Patient) client.patch().withFhirPatch(replaced("Patient.name.first().family", "Patch"))
                .withId(id).execute().getResource();
            return of(made);
        });
        step("transaction", () -> {
            Bundle answer = client.transaction().withBundle(transaction()).execute();
            IdType id = new IdType(answer.getEntry().get(1).getResponse().getLocation());
            Observation observation = client.read().resource(Observation.class).withId(id.getIdPart()).execute();
            String statuses = list(answer.getEntry().stream()
                .map(one -> quoted(one.getResponse().getStatus().substring(0, 3))).collect(Collectors.toList()));
            String target = observation.getSubject().getReferenceElement().getResourceType();
            return list(List.of(statuses, quoted(target)));
        });
        step("history", () -> list(client.history().onInstance(made.getIdElement().toUnqualifiedVersionless())
            .returnBundle(Bundle.class).execute().getEntry().stream()
            .map(one -> quoted(one.getResource().getMeta().getVersionId())).collect(Collectors.toList())));
        step("delete", () -> {
            client.delete().resourceById(made.getIdElement().toUnqualifiedVersionless()).execute();
            return quoted(client.read().resource(Patient.class).withId(made.getIdElement().getIdPart()).execute().getId());
        });
    }
}
