import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.fhirpath.IFhirPath;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import org.hl7.fhir.instance.model.api.IBase;

/** HAPI's FHIRPath on the expressions of fhirpath.py: groups of [focus, [expression, ...]] as JSON in, microseconds out. */
public class FhirPath {
  public static void main(String[] arguments) throws Exception {
    FhirContext context = FhirContext.forR4();
    IFhirPath engine = context.newFhirPath();
    List<List<Double>> answer = new ArrayList<>();
    for (JsonNode group : new ObjectMapper().readTree(System.in)) {
      IBase focus = context.newJsonParser().parseResource(group.get(0).toString());
      List<Double> times = new ArrayList<>();
      for (JsonNode text : group.get(1)) {
        IFhirPath.IParsedExpression expression = engine.parse(text.asText());
        times.add(best(() -> engine.evaluate(focus, expression, IBase.class)));
      }
      answer.add(times);
    }
    System.out.println(answer);
  }

  /** The best of ten rounds after a second of warm-up: processor time of this thread, without compiler and garbage collector. */
  static double best(Runnable evaluation) {
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    long end = System.nanoTime() + 1_000_000_000L;
    int count = 0;
    for (; System.nanoTime() < end; count++) evaluation.run();
    int times = Math.max(1, count / 20);
    double best = Double.MAX_VALUE;
    for (int round = 0; round < 10; round++) {
      long before = threads.getCurrentThreadCpuTime();
      for (int i = 0; i < times; i++) evaluation.run();
      best = Math.min(best, (threads.getCurrentThreadCpuTime() - before) / 1000.0 / times);
    }
    return best;
  }
}
