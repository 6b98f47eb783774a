"""The check of a QuestionnaireResponse against its Questionnaire.

`form.py` reads the Questionnaire, `response.py` walks both, `enabling.py` evaluates `enableWhen`, `answers.py` checks
the values.
Source: https://hl7.org/fhir/R4/questionnaireresponse.html, https://hl7.org/fhir/R4/questionnaire.html
"""

from __future__ import annotations

from ipf.fhir.validation.questionnaires.form import Form, read_form
from ipf.fhir.validation.questionnaires.response import check_response

__all__ = ["Form", "check_response", "read_form"]
