// Shows in Azure Policy which Linux VMs do not have the VM application. It changes nothing.
//
//   az deployment sub create --location westeurope --template-file policy.bicep \
//     --parameters applicationId='<resource id of the gallery application, without /versions/…>'

targetScope = 'subscription'

@description('Resource id of the gallery application: …/galleries/NAME/applications/scheduled-events-bridge')
param applicationId string

resource definition 'Microsoft.Authorization/policyDefinitions@2021-06-01' = {
  name: 'seb-is-installed'
  properties: {
    displayName: 'Linux VMs have the Scheduled Events bridge'
    policyType: 'Custom'
    mode: 'Indexed'
    parameters: {
      applicationId: {
        type: 'String'
      }
    }
    policyRule: {
      if: {
        allOf: [
          {
            field: 'type'
            equals: 'Microsoft.Compute/virtualMachines'
          }
          {
            field: 'Microsoft.Compute/virtualMachines/storageProfile.osDisk.osType'
            equals: 'Linux'
          }
          {
            count: {
              field: 'Microsoft.Compute/virtualMachines/applicationProfile.galleryApplications[*]'
              where: {
                field: 'Microsoft.Compute/virtualMachines/applicationProfile.galleryApplications[*].packageReferenceId'
                // Bicep itself escapes the bracket, so that it is read when the policy is, and not before.
                contains: '[parameters(\'applicationId\')]'
              }
            }
            equals: 0
          }
        ]
      }
      then: {
        effect: 'audit'
      }
    }
  }
}

resource assignment 'Microsoft.Authorization/policyAssignments@2021-06-01' = {
  name: 'seb-is-installed'
  properties: {
    displayName: 'Linux VMs have the Scheduled Events bridge'
    policyDefinitionId: definition.id
    parameters: {
      applicationId: {
        value: applicationId
      }
    }
  }
}
